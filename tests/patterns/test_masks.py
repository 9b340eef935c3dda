"""Adding masks to single coordinates: the same sums as adding them one by one, in a column or sorted."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.kdf import one_step
from reference.stream import MACHINE_BYTES, mask_stream, words
from sparsesecagg.crypto.secrets import AgreedSecret, MaskSeed, SharedSecret
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.field import Word
from sparsesecagg.patterns import masks as masking
from sparsesecagg.patterns.masks import (
    DrawnMask,
    Mask,
    Pair,
    WholeMasks,
    add_to_column,
    add_up,
    mask_seeds,
    pattern_seeds,
    private_mask_seeds,
)
from strategies import seeds, user_numbers, word_sizes

Drawn = list[tuple[set[int], bool]]
"""For each mask its coordinates and its sign."""

masks_below_60 = st.lists(st.tuples(st.sets(st.integers(0, 59), max_size=30), st.booleans()), max_size=8)


def make_masks(drawn: Drawn, word: Word, offset: int = 0) -> list[DrawnMask]:
    return [
        DrawnMask(MaskStream(MaskSeed(bytes([key]) * 32), word), positive, np.array(sorted(rows), np.int64) + offset)
        for key, (rows, positive) in enumerate(drawn)
    ]


def plain_sums(drawn: Drawn, word: Word) -> dict[int, int]:
    """The sum at each coordinate that a mask covers, with plain integers."""
    sums: dict[int, int] = defaultdict(int)
    for key, (rows, positive) in enumerate(drawn):
        values = words(mask_stream(bytes([key]) * 32, len(rows) * MACHINE_BYTES[word.bits]), word.bits)
        for row, value in zip(sorted(rows), values, strict=True):
            sums[row] += value if positive else -value
    return {row: sums[row] % word.modulus for row in sorted(sums)}


@given(word_sizes, masks_below_60)
def test_masks_add_up_at_the_coordinates_that_they_cover(word: Word, drawn: Drawn) -> None:
    coordinates, sums = add_up(make_masks(drawn, word), word)
    assert dict(zip(coordinates.tolist(), word.reduce(sums).tolist(), strict=True)) == plain_sums(drawn, word)
    assert coordinates.tolist() == sorted(coordinates.tolist())
    assert coordinates.dtype == np.int64
    assert sums.dtype == word.accumulator


@pytest.mark.parametrize("offset", [2**31 - 60, 2**31 - 30, 2**31, 2**32 - 30, 2**39])
def test_coordinates_beyond_31_bits_add_up_alike(offset: int) -> None:
    word = Word.of(32)
    rng = np.random.default_rng(offset)
    drawn = [(set(rng.choice(60, 20, replace=False).tolist()), bool(key % 2)) for key in range(6)]
    coordinates, sums = add_up(make_masks(drawn, word, offset), word)
    found = zip((coordinates - offset).tolist(), word.reduce(sums).tolist(), strict=True)
    assert dict(found) == plain_sums(drawn, word)


@given(word_sizes, masks_below_60)
def test_a_column_gets_every_mask(word: Word, drawn: Drawn) -> None:
    column = word.embed(np.arange(60))
    add_to_column(column, make_masks(drawn, word), word)
    expected = plain_sums(drawn, word)
    assert word.reduce(column).tolist() == [(row + expected.get(row, 0)) % word.modulus for row in range(60)]


@given(word_sizes, st.lists(st.booleans(), max_size=4), st.lists(st.integers(0, 40), max_size=4))
def test_masks_that_cover_everything_run_on_from_piece_to_piece(
    word: Word, signs: list[bool], pieces: list[int]
) -> None:
    masks = [Mask(MaskStream(MaskSeed(bytes([key]) * 32), word), positive) for key, positive in enumerate(signs)]
    length = sum(pieces)
    sums = [word.zeros((size,)) for size in pieces]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "ONCE_BYTES", 0 if len(pieces) != 1 else 1 << 19)
        whole = WholeMasks(masks, word, length)
    for piece in sums:
        whole.add(piece)
    expected = plain_sums([(set(range(length)), positive) for positive in signs], word) if signs else {}
    found = [value for piece in sums for value in word.reduce(piece).tolist()]
    assert found == [expected.get(row, 0) for row in range(length)]


@given(seeds, seeds, user_numbers, user_numbers)
def test_seeds_of_a_pair_are_the_same_for_both_and_say_who_and_where(
    agreed: bytes, context: bytes, one: int, other: int
) -> None:
    pair, twin = Pair(one, other, AgreedSecret(agreed)), Pair(other, one, AgreedSecret(agreed))
    [mask, same], [pattern, other_side] = mask_seeds([pair, twin], context), pattern_seeds([pair, twin], context)
    assert (mask, pattern) == (same, other_side)
    low, high = sorted((one, other))
    names = low.to_bytes(4, "little") + high.to_bytes(4, "little")
    assert mask.reveal() == one_step(agreed, context, b"sparsesecagg/v3/pair mask/" + names)
    assert pattern.reveal() == one_step(agreed, context, b"sparsesecagg/v3/pair pattern/" + names)


@given(st.binary(min_size=16, max_size=16), seeds, user_numbers)
def test_the_private_mask_says_who_and_where(seed: bytes, context: bytes, user: int) -> None:
    [found] = private_mask_seeds({user: SharedSecret(seed)}, context)
    assert found.reveal() == one_step(seed, context, b"sparsesecagg/v3/private mask/" + user.to_bytes(4, "little"))
