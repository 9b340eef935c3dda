"""Packing: exactly `bits` bits per word, and nothing else is accepted back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.words import packed, unpacked
from sparsesecagg import field
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.field import WORD_BITS, Word, pack, packed_size, unpack
from strategies import residues, word_sizes


@given(word_sizes, st.data())
def test_words_lie_one_behind_the_other_lowest_bit_first(word: Word, data: st.DataObject) -> None:
    words = data.draw(st.lists(residues(word), max_size=33))
    wire = bytes(pack(np.array(words, word.dtype), word))
    assert wire == packed(words, word.bits)
    assert len(wire) == packed_size(len(words), word.bits) == (len(words) * word.bits + 7) // 8


@given(word_sizes, st.data())
def test_unpacking_returns_the_words(word: Word, data: st.DataObject) -> None:
    words = data.draw(st.lists(residues(word), max_size=33))
    read = unpack(packed(words, word.bits), len(words), word)
    assert read.tolist() == words == unpacked(packed(words, word.bits), len(words), word.bits)
    assert read.dtype == word.dtype


@pytest.mark.parametrize("bits", WORD_BITS)
def test_long_arrays_are_packed_in_parts_without_a_seam(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field, "_CHUNK_LANES", 16)
    word = Word.of(bits)
    for count in (127, 128, 129, 383, 384, 385):
        words = np.random.default_rng(count).integers(0, word.modulus, count).astype(word.dtype)
        wire = bytes(pack(words, word))
        assert wire == packed(words.tolist(), bits)
        assert np.array_equal(unpack(wire, count, word), words)


@pytest.mark.parametrize(
    ("bits", "words", "wire"),
    [
        (4, [0x1, 0x2, 0xF], "210f"),
        (6, [0b000001, 0b000010, 0b000011, 0b000100, 0b111111], "8130103f"),
        (12, [0x123, 0xABC, 0xFFF], "23c1abff0f"),
        (24, [0x123456, 0xFEDCBA], "563412badcfe"),
    ],
)
def test_examples_by_hand(bits: int, words: list[int], wire: str) -> None:
    """Independent of any twin: the first word's lowest bit is the first byte's lowest bit."""
    assert bytes(pack(np.array(words, Word.of(bits).dtype), Word.of(bits))).hex() == wire


@pytest.mark.parametrize("bits", [4, 7, 8, 12, 32])
def test_a_table_of_blocks_is_packed_row_by_row(bits: int) -> None:
    """Also when its memory is not contiguous."""
    word = Word.of(bits)
    table = (np.arange(42) % word.modulus).astype(word.dtype).reshape(6, 7)
    assert bytes(pack(table, word)) == packed(table.reshape(-1).tolist(), bits)
    assert bytes(pack(table.T, word)) == packed(table.T.reshape(-1).tolist(), bits)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_machine_words_are_packed_without_a_copy(bits: int) -> None:
    words = np.zeros(10, Word.of(bits).dtype)
    assert np.shares_memory(np.frombuffer(pack(words, Word.of(bits)), np.uint8), words)


@given(word_sizes, st.integers(0, 20), st.integers(0, 80))
def test_any_other_length_is_refused(word: Word, count: int, size: int) -> None:
    """Truncated and trailing bytes alike."""
    if size == packed_size(count, word.bits):
        assert len(unpack(bytes(size), count, word)) == count
    else:
        with pytest.raises(MalformedMessage, match=f"not {size}"):
            unpack(bytes(size), count, word)


@given(word_sizes, st.integers(1, 101), st.integers(0, 7))
def test_padding_that_is_not_zero_is_refused(word: Word, count: int, bit: int) -> None:
    """Otherwise one upload would have many encodings. Words of nothing but ones leave the padding alone."""
    largest = word.modulus - 1
    wire = bytearray(packed([largest] * count, word.bits))
    assert unpack(bytes(wire), count, word).tolist() == [largest] * count
    if bit < 8 * len(wire) - count * word.bits:
        wire[-1] |= 0x80 >> bit
        with pytest.raises(MalformedMessage, match="padding"):
            unpack(bytes(wire), count, word)


@pytest.mark.parametrize("value", [2**32 - 5, 2**32 - 4, 2**32 - 1])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_words_outside_the_field_are_refused(value: int, place: int) -> None:
    words = [0, 1, 2**32 - 6]
    assert unpack(packed(words, 32), 3, Word.of(32)).tolist() == words
    words[place] = value
    with pytest.raises(MalformedMessage, match="modulus"):
        unpack(packed(words, 32), 3, Word.of(32))


@given(word_sizes, st.integers(0, 12), st.binary(max_size=50))
def test_random_bytes_unpack_to_canonical_words_or_are_refused(word: Word, count: int, data: bytes) -> None:
    """Whatever is accepted packs to the very same bytes again."""
    data = data[: packed_size(count, word.bits)].ljust(packed_size(count, word.bits), b"\xff")
    try:
        words = unpack(memoryview(data), count, word)
    except MalformedMessage:
        return
    assert all(0 <= value < word.modulus for value in words.tolist())
    assert bytes(pack(words, word)) == data
