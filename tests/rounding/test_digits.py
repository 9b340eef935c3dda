"""Digits: sums of private integers are exact in every word, however short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word
from sparsesecagg.rounding import Digits
from strategies import word_sizes

maxima_lists = st.lists(st.sampled_from([0, 1, 2, 255, 2**40]) | st.integers(0, 2**40), min_size=1, max_size=3)


@given(word_sizes, maxima_lists, st.data())
def test_sums_are_exact_for_any_values(word: Word, maxima: list[int], data: st.DataObject) -> None:
    """Digits travel as words, are summed in the word's group, and come back without wrapping."""
    contributors = data.draw(st.integers(1, min(60, word.modulus - 1)))
    digits = Digits.fit(word, contributors, maxima)
    value = st.tuples(*(st.sampled_from([0, maximum]) | st.integers(0, maximum) for maximum in maxima))
    users = data.draw(st.lists(value, max_size=contributors))
    sums = word.zeros((digits.total,))
    for values in users:
        sums += word.embed(digits.write(values))
    read = digits.read(word.reduce(sums).tolist())
    assert read == tuple(sum(values[i] for values in users) for i in range(len(maxima)))


@pytest.mark.parametrize("contributors", [1, 2, 3, 7, 8, 14, 15, 100, 127, 128, 129, 255])
def test_all_contributors_at_the_maximum_do_not_wrap(contributors: int) -> None:
    """All digits are as large as they get, in every word that is long enough."""
    maximum = 2**33 - 1
    for word in [Word.of(bits) for bits in WORD_BITS if contributors < 1 << bits]:
        digits = Digits.fit(word, contributors, [maximum])
        sums = word.embed(digits.write([maximum])) * contributors
        assert digits.read(word.reduce(sums).tolist()) == (contributors * maximum,)


@given(word_sizes, st.integers(1, 10_000), maxima_lists)
def test_digits_are_as_long_and_as_few_as_can_be(word: Word, contributors: int, maxima: list[int]) -> None:
    if contributors >= word.modulus:
        return
    digits = Digits.fit(word, contributors, maxima)
    assert contributors * (2**digits.digit_bits - 1) < word.modulus
    assert contributors * (2 ** (digits.digit_bits + 1) - 1) >= word.modulus
    for maximum, count in zip(maxima, digits.counts, strict=True):
        assert maximum < 2 ** (digits.digit_bits * count)
        assert count == 0 or maximum >= 2 ** (digits.digit_bits * (count - 1))
    assert digits.total == sum(digits.counts)


@given(st.integers(1, 200), st.lists(st.integers(0, 2**20), min_size=2, max_size=2))
def test_digits_come_least_significant_first(contributors: int, values: list[int]) -> None:
    digits = Digits.fit(Word.of(8), contributors, [2**20, 2**20])
    written = digits.write(values).tolist()
    base = 2**digits.digit_bits
    for value, part in zip(values, (written[: digits.counts[0]], written[digits.counts[0] :]), strict=True):
        assert value == sum(digit * base**place for place, digit in enumerate(part))
        assert all(0 <= digit < base for digit in part)


def test_a_maximum_of_zero_takes_no_word() -> None:
    """A round without weights pays nothing for them."""
    digits = Digits.fit(Word.of(16), 10, [0, 100])
    assert digits.counts[0] == 0
    assert digits.write([0, 100]).shape == (digits.counts[1],)
    assert Digits.fit(Word.of(16), 10, [0, 0]).total == 0


@pytest.mark.parametrize(
    ("bits", "contributors", "enough"),
    [(4, 16, 5), (4, 31, 5), (4, 32, 6), (8, 256, 9), (12, 4096, 13), (16, 70_000, 17), (30, 2**30, 31)],
)
def test_a_word_too_short_for_a_single_bit_is_refused(bits: int, contributors: int, enough: int) -> None:
    expected = f"must be at least {enough} to carry the weights of {contributors} contributors, got {bits}$"
    with pytest.raises(InvalidInput, match=expected) as caught:
        Digits.fit(Word.of(bits), contributors, [1])
    assert caught.value.option == "modulus_bits"
    assert Digits.fit(Word.of(enough), contributors, [1]).digit_bits == 1
    with pytest.raises(InvalidInput):
        Digits.fit(Word.of(enough - 1), contributors, [1])
    assert Digits.fit(Word.of(bits), contributors, [0]).total == 0
    assert Digits.fit(Word.of(bits), (1 << bits) - 1, [1]).digit_bits == 1


def test_a_value_beyond_its_maximum_is_refused_as_the_weight_it_is() -> None:
    digits = Digits.fit(Word.of(8), 4, [1000, 3])
    assert digits.read(digits.write([1000, 3]).tolist()) == (1000, 3)
    for values in ([1 << 20, 0], [0, 1 << 20], [-1, 0]):
        with pytest.raises(InvalidInput) as caught:
            digits.write(values)
        assert caught.value.option == "weight"
