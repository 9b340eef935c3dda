"""Words: residues, lazy sums and signs, against plain integers."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference.words import MODULI, residue, signed
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word
from strategies import residues, signed_values, word_sizes


@pytest.fixture(params=[4, 5, 8, 9, 16, 17, 31, 32])  # Both ends of every machine word.
def word(request: pytest.FixtureRequest) -> Word:
    return Word.of(request.param)


def test_there_are_words_of_every_size_from_4_to_32_bits() -> None:
    """The 32-bit word is the paper's field; the shorter ones are groups modulo a power of two."""
    assert {bits: Word.of(bits).modulus for bits in WORD_BITS} == MODULI


@pytest.mark.parametrize("bits", [-8, 0, 1, 3, 33, 64])
def test_other_sizes_are_refused_with_the_allowed_ones(bits: int) -> None:
    with pytest.raises(InvalidInput, match=f"must be from 4 to 32, got {bits}$") as caught:
        Word.of(bits)
    assert caught.value.option == "modulus_bits"


def test_a_word_fits_its_type_and_its_bits(word: Word) -> None:
    """In the shortest machine word that holds it: a mask stream costs as many bytes."""
    assert word.modulus <= 1 << word.bits <= 1 << 8 * word.dtype.itemsize
    assert word.dtype.itemsize == next(size for size in (1, 2, 4) if 8 * size >= word.bits)


@given(word_sizes, st.data())
def test_embedding_gives_the_residue(word: Word, data: st.DataObject) -> None:
    """φ of the paper; negative values become q − |value|."""
    values = data.draw(st.lists(signed_values(word), min_size=1, max_size=20))
    words = word.reduce(word.embed(np.array(values, np.int64)))
    assert words.tolist() == [residue(value, word.bits) for value in values]
    assert words.dtype == word.dtype


@given(word_sizes, st.data())
def test_lifting_undoes_embedding(word: Word, data: st.DataObject) -> None:
    values = data.draw(st.lists(signed_values(word), min_size=1, max_size=20))
    assert word.lift(word.reduce(word.embed(np.array(values, np.int64)))).tolist() == values


@given(word_sizes, st.data())
def test_lifting_takes_the_signed_value_nearest_to_zero(word: Word, data: st.DataObject) -> None:
    words = data.draw(st.lists(residues(word), min_size=1, max_size=20))
    lifted = word.lift(np.array(words, word.dtype))
    assert lifted.tolist() == [signed(value, word.bits) for value in words]
    assert lifted.dtype == np.int64
    short = word.lift_short(np.array(words, word.dtype).astype(word.accumulator))
    assert short.tolist() == lifted.tolist()
    assert short.dtype.itemsize == word.dtype.itemsize


@given(word_sizes, st.data())
def test_a_word_and_its_negative_cancel(word: Word, data: st.DataObject) -> None:
    """Also 0, and the surplus high bits that a mask stream may carry."""
    top = word.modulus - 1 if word.bits == 32 else np.iinfo(word.dtype).max
    drawn = data.draw(st.lists(st.sampled_from([0, 1, top]) | st.integers(0, int(top)), min_size=1, max_size=20))
    words = np.array(drawn, word.dtype)
    sums = words.astype(word.accumulator)
    word.negate(words)
    sums += words
    assert not word.reduce(sums).any()


@pytest.mark.parametrize("length", [2**15 - 1, 2**15, 2**15 + 1, 2**17 + 5])
def test_long_arrays_are_worked_on_in_parts_without_a_seam(word: Word, length: int) -> None:
    rng = np.random.default_rng(length)
    sums = rng.integers(np.iinfo(word.accumulator).min // 4, np.iinfo(word.accumulator).max // 4, length)
    sums = sums.astype(word.accumulator)
    words = word.reduce(sums.reshape(1, -1))
    assert words.shape == (1, length)
    assert (words[0] == sums.astype(object) % word.modulus).all()
    lifted = word.lift(words)
    assert lifted.shape == (1, length)
    assert ((lifted - words.astype(np.int64)) % word.modulus == 0).all()
    assert np.abs(lifted).max() <= word.largest + 1
    assert np.array_equal(word.lift(sums), lifted[0]), "reduced or not"


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_embedding_leaves_the_values_alone(word: Word, dtype: type) -> None:
    """Masks are added to the embedded values in place, so they must not share memory with the update."""
    values: NDArray[Any] = np.array([-1, 0, 1], dtype)
    embedded = word.embed(values)
    embedded += 1
    assert values.tolist() == [-1, 0, 1]


@given(word_sizes, st.data())
def test_lazy_sums_of_both_signs_reduce_to_the_plain_sum(word: Word, data: st.DataObject) -> None:
    """A client adds its masks with either sign and reduces once."""
    width = data.draw(st.integers(1, 4))
    row = st.lists(residues(word), min_size=width, max_size=width)
    start = data.draw(st.lists(signed_values(word), min_size=width, max_size=width))
    terms = data.draw(st.lists(st.tuples(st.sampled_from([1, -1]), row), max_size=30))

    sums = word.embed(np.array(start, np.int64))
    for sign, words in terms:
        (np.add if sign > 0 else np.subtract)(sums, np.array(words, word.dtype), out=sums)

    plain = [start[i] + sum(sign * words[i] for sign, words in terms) for i in range(width)]
    assert word.reduce(sums).tolist() == [residue(value, word.bits) for value in plain]


@pytest.mark.parametrize("value", ["0", "1", "q - 1"])
@pytest.mark.parametrize("sign", [1, -1])
def test_thousands_of_equal_terms_add_up(word: Word, value: str, sign: int) -> None:
    """One upload per user and a mask per pair: the server reduces after thousands of terms."""
    element = {"0": 0, "1": 1, "q - 1": word.modulus - 1}[value]
    terms = 5000
    sums = word.zeros((3,))
    words = np.full(3, element, word.dtype)
    for _ in range(terms):
        (np.add if sign > 0 else np.subtract)(sums, words, out=sums)
    assert word.reduce(sums).tolist() == [residue(sign * terms * element, word.bits)] * 3


LARGEST_SUM = 2**30 * (2**32 - 6)
"""2^30 terms of q − 1, the bound that the module promises."""


@given(st.sampled_from([-LARGEST_SUM, LARGEST_SUM]) | st.integers(-LARGEST_SUM, LARGEST_SUM))
def test_the_32_bit_word_reduces_any_sum_of_two_to_the_30_terms(total: int) -> None:
    """At every value between the ends, and at the ends."""
    assert Word.of(32).reduce(np.array([total], np.int64)).tolist() == [total % (2**32 - 5)]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("multiple", [0, 1, 2, 5, 2**16, 2**24, 2**30 - 1])
def test_the_32_bit_word_reduces_next_to_multiples_of_q_and_of_two_to_the_32(sign: int, multiple: int) -> None:
    """Where a reduction has its corners: one that stops a step early is caught here."""
    for base, offset in product((2**32 - 5, 2**32), (-6, -5, -1, 0, 1, 4, 5, 6)):
        total = sign * (multiple * base + offset)
        if abs(total) <= LARGEST_SUM:
            assert Word.of(32).reduce(np.array([total], np.int64)).tolist() == [total % (2**32 - 5)]


def test_an_empty_sum_is_zero(word: Word) -> None:
    sums = word.zeros((2, 3))
    assert sums.dtype == word.accumulator
    assert word.reduce(sums).tolist() == [[0] * 3] * 2


def test_tables_keep_their_shape_whatever_their_memory(word: Word) -> None:
    values = np.random.default_rng(1).integers(-word.largest, word.largest + 1, (30, 40))
    for table in (values, values.T, values[::3, 5:], values[:0]):
        words = word.reduce(word.embed(table))
        assert np.array_equal(words, table % word.modulus)
        assert np.array_equal(word.lift(words), table)
