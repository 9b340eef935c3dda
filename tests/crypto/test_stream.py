"""Key streams: AES-256-CTR by the book. Mask streams: the same from the third block on, read as uniform words."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import statistics
from reference.stream import MACHINE_BYTES, key_stream, mask_stream, words
from sparsesecagg.crypto import stream as stream_module
from sparsesecagg.crypto.secrets import MaskSeed
from sparsesecagg.crypto.stream import KeyStream, MaskStream, Scratch, read_side_by_side, words_side_by_side
from sparsesecagg.field import WORD_BITS, Word
from strategies import seeds, word_sizes

SEED = bytes(range(32))


class ScriptedStream(MaskStream):
    """A mask stream whose key stream is given: a word ≥ q turns up once in 2^30 and can't be waited for."""

    def __init__(self, script: bytes, word: Word) -> None:
        super().__init__(MaskSeed(SEED), word)
        self._script, self._read = script, 0

    def fill_once(self, room: memoryview, size: int) -> None:
        room[:size] = self._script[:size]

    def fill(self, buffer: memoryview, size: int) -> None:
        part = self._script[self._read : self._read + size]
        assert len(part) == size, "the script is too short"
        buffer[:size] = part
        self._read += size


def take(stream: MaskStream, count: int, word: Word, scratch: Scratch | None = None) -> list[int]:
    """Read words and reduce them, as everybody does who adds masks."""
    drawn = stream.words(count, scratch or Scratch(word, max(1, count)))
    return [int(value) for value in word.reduce(drawn.astype(word.accumulator))]


# The key stream


def test_the_zero_key_gives_the_published_first_block() -> None:
    """AES-256 of a zero block under a zero key, from the NIST vectors."""
    block = KeyStream(MaskSeed(bytes(32))).read(16)
    assert block.tobytes().hex() == "dc95c078a2408989ad48a21492842087"


@given(seeds, st.integers(0, 200))
def test_a_stream_is_aes_in_counter_mode_from_zero(seed: bytes, size: int) -> None:
    assert KeyStream(MaskSeed(seed)).read(size).tobytes() == key_stream(seed, size)


@given(st.lists(st.integers(0, 70), max_size=12))
def test_how_a_stream_is_cut_into_reads_does_not_matter(sizes: list[int]) -> None:
    stream = KeyStream(MaskSeed(SEED))
    assert b"".join(stream.read(size).tobytes() for size in sizes) == key_stream(SEED, sum(sizes))


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20 + 17])
def test_reads_beyond_a_mebibyte_go_on_without_a_seam(size: int) -> None:
    """Long reads are made in parts."""
    stream = KeyStream(MaskSeed(SEED))
    assert (stream.read(size).tobytes() + stream.read(16).tobytes()) == key_stream(SEED, size + 16)


@pytest.mark.parametrize("gcm", [True, False])
@pytest.mark.parametrize("size", [16, 2**15 - 2, 2**15, 2**20, 2**20 + 2])
def test_a_mask_is_the_same_whichever_way_the_processor_is_faster_at(
    gcm: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_gcm_is_faster", lambda: gcm)
    word, expected = Word.of(16), mask_stream(SEED, size)
    for read in (MaskStream.words, MaskStream.only_words):
        assert read(MaskStream(MaskSeed(SEED), word), size // 2, Scratch(word, size // 2)).tobytes() == expected


# Words


@given(word_sizes, seeds, st.integers(0, 100))
def test_words_are_little_endian_machine_words_of_the_stream(word: Word, seed: bytes, count: int) -> None:
    drawn = take(MaskStream(MaskSeed(seed), word), count, word)
    assert drawn == words(mask_stream(seed, count * MACHINE_BYTES[word.bits]), word.bits)


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("size", [0, 1, 15, 17, 1 << 18, (1 << 20) + 5])
def test_a_stream_that_is_read_once_gives_the_same_words(bits: int, size: int) -> None:
    """One call of the cipher, in place of one that could go on."""
    word, count = Word.of(bits), size // MACHINE_BYTES[bits]
    scratch, other = Scratch(word, max(1, count)), Scratch(word, max(1, count))
    stream, again = MaskStream(MaskSeed(SEED), word), MaskStream(MaskSeed(SEED), word)
    assert np.array_equal(stream.only_words(count, scratch), again.words(count, other))


def test_a_stream_that_is_read_once_skips_words_outside_the_field_too() -> None:
    word = Word.of(32)
    script = np.array([1, 2**32 - 1, 2, 2**32 - 5, 3], "<u4").tobytes()
    assert ScriptedStream(script, word).only_words(3, Scratch(word, 3)).tolist() == [1, 2, 3]


@given(word_sizes, st.lists(st.integers(0, 40), max_size=8))
def test_how_words_are_cut_into_reads_does_not_matter(word: Word, counts: list[int]) -> None:
    """Client and server read the same mask in pieces of different size."""
    stream, scratch = MaskStream(MaskSeed(SEED), word), Scratch(word, 40)
    drawn = [value for count in counts for value in take(stream, count, word, scratch)]
    assert drawn == take(MaskStream(MaskSeed(SEED), word), sum(counts), word)


@given(st.data())
def test_words_outside_the_field_are_skipped(data: st.DataObject) -> None:
    """Also at the end of a read, several in a row, and again among their replacements; no word is lost or repeated."""
    modulus = 2**32 - 5
    kept, skipped = st.sampled_from([0, 1, modulus - 1]), st.integers(modulus, 2**32 - 1)
    script = data.draw(st.lists(kept | skipped | st.integers(0, 2**32 - 1), max_size=40))
    stream_bytes = b"".join(value.to_bytes(4, "little") for value in script)
    expected = words(stream_bytes, 32)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(expected)), max_size=6)))

    word = Word.of(32)
    stream, scratch = ScriptedStream(stream_bytes, word), Scratch(word, 40)
    bounds = [0, *cuts, len(expected)]
    drawn = [value for start, stop in pairwise(bounds) for value in take(stream, stop - start, word, scratch)]
    assert drawn == expected


def test_a_read_of_nothing_but_refused_words_goes_on_until_it_has_enough() -> None:
    word = Word.of(32)
    script = np.array([2**32 - 1] * 7 + [2**32 - 5] * 2 + [2**32 - 6, 5], "<u4").tobytes()
    assert take(ScriptedStream(script, word), 2, word) == [2**32 - 6, 5]


@given(word_sizes, st.lists(st.integers(0, 40), max_size=8))
def test_reading_many_streams_at_once_gives_what_each_gives_alone(word: Word, counts: list[int]) -> None:
    keys = [MaskSeed(bytes([key]) * 32) for key in range(len(counts))]
    drawn = words_side_by_side([MaskStream(key, word) for key in keys], counts, word)
    alone = [take(MaskStream(key, word), count, word) for key, count in zip(keys, counts, strict=True)]
    assert word.reduce(drawn.astype(word.accumulator)).tolist() == [value for part in alone for value in part]


@pytest.mark.parametrize("count", [2**18, 2**18 + 1])
def test_long_streams_are_read_from_their_beginning_too(count: int) -> None:
    """On both sides of a megabyte, with a key whose stream has a word outside the field; one in 3,000 keys has."""
    word, key = Word.of(32), MaskSeed((1629).to_bytes(32, "little"))
    scratch = Scratch(word, count)
    MaskStream(key, word).fill(scratch.room, 4 * count)
    assert scratch.first(count).max() >= word.modulus
    alone = MaskStream(key, word).words(count, scratch)
    assert np.array_equal(words_side_by_side([MaskStream(key, word)], [count], word), alone)


@pytest.mark.parametrize("bits", range(4, 32))
def test_short_words_skip_nothing(bits: int) -> None:
    """Their modulus is a power of two, so every machine word has its residue."""
    word = Word.of(bits)
    script = b"\xff" * (3 * MACHINE_BYTES[bits])
    assert take(ScriptedStream(script, word), 3, word) == [word.modulus - 1] * 3


@pytest.mark.parametrize("bits", WORD_BITS)
def test_words_are_uniform(bits: int) -> None:
    """Chi-square on the high and on the low eight bits, or as many as there are; error rate 1e-6 each."""
    word, count, tested = Word.of(bits), 1 << 16, min(8, bits)
    drawn = np.array(take(MaskStream(MaskSeed(SEED), word), count, word))
    statistics.assert_uniform(drawn >> (bits - tested), 1 << tested)
    statistics.assert_uniform(drawn & ((1 << tested) - 1), 1 << tested)


def test_streams_of_two_keys_share_nothing() -> None:
    word = Word.of(32)
    one, other = (take(MaskStream(MaskSeed(seed), word), 1000, word) for seed in (SEED, SEED[::-1]))
    assert not set(one) & set(other)


# Many short reads at once


@given(st.lists(st.integers(0, 40), max_size=8))
def test_bytes_of_many_streams_lie_one_behind_the_other(sizes: list[int]) -> None:
    """And each stream goes on from there."""
    keys = [bytes([number]) * 32 for number in range(len(sizes))]
    streams = [KeyStream(MaskSeed(key)) for key in keys]
    expected = [key_stream(key, 2 * size) for key, size in zip(keys, sizes, strict=True)]
    for turn in range(2):
        parts = [whole[turn * size : (turn + 1) * size] for whole, size in zip(expected, sizes, strict=True)]
        assert read_side_by_side(streams, sizes).tobytes() == b"".join(parts)


@given(st.data())
def test_many_streams_skip_words_outside_the_field_each_for_itself(data: st.DataObject) -> None:
    """A stream that lost a word takes its own next one, not its neighbour's."""
    word = Word.of(32)
    values = st.sampled_from([0, word.modulus - 1, word.modulus, 2**32 - 1]) | st.integers(0, 2**32 - 1)
    scripts = [
        b"".join(value.to_bytes(4, "little") for value in script)
        for script in data.draw(st.lists(st.lists(values, max_size=20), min_size=1, max_size=5))
    ]
    expected = [words(script, 32) for script in scripts]
    parts = [part[: data.draw(st.integers(0, len(part)))] for part in expected]
    streams = [ScriptedStream(script, word) for script in scripts]
    drawn = words_side_by_side(streams, [len(part) for part in parts], word)
    assert drawn.tolist() == [value for part in parts for value in part]


# Scratch memory


def test_many_streams_share_one_scratch() -> None:
    """A read is valid until the next, and disturbs no other stream."""
    word = Word.of(16)
    scratch = Scratch(word, 64)
    keys = [bytes([key]) * 32 for key in range(5)]
    streams = [MaskStream(MaskSeed(key), word) for key in keys]
    drawn: list[list[int]] = [[] for _ in keys]
    counts = [64, 1, 33, 0, 64, 7]
    for count in counts:
        for stream, so_far in zip(streams, drawn, strict=True):
            so_far.extend(take(stream, count, word, scratch))
    assert drawn == [words(mask_stream(key, 2 * sum(counts)), 16) for key in keys]


@pytest.mark.parametrize("bits", WORD_BITS)
def test_a_read_allocates_nothing(bits: int) -> None:
    """The words lie in the scratch itself."""
    word = Word.of(bits)
    scratch = Scratch(word, 32)
    assert np.shares_memory(MaskStream(MaskSeed(SEED), word).words(32, scratch), scratch.buffer)


@pytest.mark.parametrize("bits", WORD_BITS)
def test_a_read_beyond_the_scratch_is_refused(bits: int) -> None:
    """Rather than answered with words that are not from the stream."""
    word = Word.of(bits)
    with pytest.raises(ValueError, match="buffer"):
        MaskStream(MaskSeed(SEED), word).words(64, Scratch(word, 32))
