"""Adding masks to single coordinates: the same sums as adding them one by one, in a column or sorted."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.stream import MACHINE_BYTES, key_stream, words
from sparsesecagg.crypto.secrets import MaskSeed
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.field import Word
from sparsesecagg.protocol import masking
from sparsesecagg.protocol.masking import Mask, add_to_column, add_up
from strategies import word_sizes

Drawn = list[tuple[set[int], bool]]
"""For each mask its coordinates and its sign."""

masks_below_60 = st.lists(st.tuples(st.sets(st.integers(0, 59), max_size=30), st.booleans()), max_size=8)


def make_masks(drawn: Drawn, word: Word, offset: int = 0) -> list[Mask]:
    return [
        Mask(MaskStream(MaskSeed(bytes([key]) * 32), word), np.array(sorted(rows), np.int64) + offset, positive)
        for key, (rows, positive) in enumerate(drawn)
    ]


def plain_sums(drawn: Drawn, word: Word) -> dict[int, int]:
    """The sum at each coordinate that a mask covers, with plain integers."""
    sums: dict[int, int] = defaultdict(int)
    for key, (rows, positive) in enumerate(drawn):
        values = words(key_stream(bytes([key]) * 32, len(rows) * MACHINE_BYTES[word.bits]), word.bits)
        for row, value in zip(sorted(rows), values, strict=True):
            sums[row] += value if positive else -value
    return {row: sums[row] % word.modulus for row in sorted(sums)}


@given(word_sizes, masks_below_60)
def test_masks_add_up_at_the_coordinates_that_they_cover(word: Word, drawn: Drawn) -> None:
    coordinates, sums = add_up(make_masks(drawn, word), word)
    assert dict(zip(coordinates.tolist(), word.reduce(sums).tolist(), strict=True)) == plain_sums(drawn, word)
    assert coordinates.tolist() == sorted(coordinates.tolist())
    assert (coordinates.dtype, sums.dtype) == (np.int64, word.accumulator)


@pytest.mark.parametrize("offset", [2**32 - 60, 2**32 - 30, 2**32, 2**39])
def test_coordinates_beyond_32_bits_add_up_alike(offset: int) -> None:
    word = Word.of(32)
    rng = np.random.default_rng(offset)
    drawn = [(set(rng.choice(60, 20, replace=False).tolist()), bool(key % 2)) for key in range(6)]
    coordinates, sums = add_up(make_masks(drawn, word, offset), word)
    found = zip((coordinates - offset).tolist(), word.reduce(sums).tolist(), strict=True)
    assert dict(found) == plain_sums(drawn, word)


@given(word_sizes, masks_below_60, st.integers(1, 100))
def test_a_column_gets_every_mask_however_they_are_batched(word: Word, drawn: Drawn, batch: int) -> None:
    column = word.embed(np.arange(60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "_BATCH_WORDS", batch)
        add_to_column(column, iter(make_masks(drawn, word)), word)
    expected = plain_sums(drawn, word)
    assert word.reduce(column).tolist() == [(row + expected.get(row, 0)) % word.modulus for row in range(60)]


@given(word_sizes, st.booleans())
def test_a_mask_may_cover_the_whole_column(word: Word, positive: bool) -> None:
    column = word.zeros((25,))
    add_to_column(column, [Mask(MaskStream(MaskSeed(bytes(32)), word), slice(None), positive)], word)
    assert word.reduce(column).tolist() == list(plain_sums([(set(range(25)), positive)], word).values())
