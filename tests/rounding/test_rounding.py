"""Quantisation: right on average, never beyond the limit, clipping counted, overflow impossible."""

from __future__ import annotations

from math import ceil, floor, isfinite, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference import statistics
from reference.words import signed
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word
from sparsesecagg.rounding import Quantizer
from strategies import word_sizes

SOME_WORDS = (4, 8, 12, 15, 16, 24, 32)
"""Short ones round in 32 bits, long ones in 64; the 32-bit one is a prime field."""

clips = st.sampled_from([1.0, 0.01, 5.0, 1e-6, 1e6]) | st.floats(1e-6, 1e6)
real_types = st.sampled_from([np.float32, np.float64])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def fits(word: Word) -> st.SearchStrategy[int]:
    """Numbers of contributors that the word can serve."""
    return st.integers(1, min(word.largest, 2**16))


# Headroom


@given(word_sizes, st.data())
def test_the_limit_is_the_largest_that_can_not_wrap(word: Word, data: st.DataObject) -> None:
    contributors = data.draw(fits(word))
    limit = Quantizer.fit(word, contributors, 1.0).limit
    assert contributors * limit <= word.largest < contributors * (limit + 1)


@given(word_sizes, st.data(), st.sampled_from([-1.0, 1.0]))
def test_the_sum_of_all_contributors_at_the_limit_is_exact(word: Word, data: st.DataObject, sign: float) -> None:
    """Everybody sends the largest value, with headroom to clip: the sum comes back without wrapping."""
    contributors = data.draw(st.integers(1, min(word.largest, 500)))
    quantizer = Quantizer.fit(word, contributors, 1.0)
    sums, total = word.zeros((1,)), 0
    for user in range(contributors):
        integers, _ = quantizer.quantize(np.array([sign * 7.0]), 1.0, rng(user))
        sums += word.embed(integers)
        total += int(integers[0])
    assert abs(total) >= contributors * (quantizer.limit - 1)
    assert word.lift(word.reduce(sums)).tolist() == [total]


def test_one_level_more_would_wrap() -> None:
    """Shows that the headroom is needed: the twin's sum changes its sign."""
    word = Word.of(8)
    limit = Quantizer.fit(word, 10, 1.0).limit
    assert signed(10 * limit, 8) == 10 * limit
    assert signed(11 * limit, 8) < 0


@pytest.mark.parametrize(
    ("bits", "contributors", "enough"),
    [(4, 8, 5), (4, 15, 5), (4, 16, 6), (8, 128, 9), (8, 5000, 14), (16, 40_000, 17), (8, 2**30 - 1, 31)],
)
def test_a_word_that_is_too_short_is_refused_with_the_shortest_that_is_not(
    bits: int, contributors: int, enough: int
) -> None:
    expected = f"must be at least {enough} to hold the sum of {contributors} contributors, got {bits}$"
    with pytest.raises(InvalidInput, match=expected) as caught:
        Quantizer.fit(Word.of(bits), contributors, 1.0)
    assert caught.value.option == "modulus_bits"
    assert Quantizer.fit(Word.of(enough), contributors, 1.0).limit == 1
    with pytest.raises(InvalidInput):
        Quantizer.fit(Word.of(enough - 1), contributors, 1.0)


@pytest.mark.parametrize("bits", SOME_WORDS)
def test_longer_clips_make_coarser_levels(bits: int) -> None:
    fine, coarse = (Quantizer.fit(Word.of(bits), 7, clip) for clip in (1.0, 8.0))
    assert fine.limit == coarse.limit
    assert fine.scale == 8 * coarse.scale


# Rounding


@given(word_sizes, real_types, clips, st.lists(st.floats(-1, 1), min_size=1, max_size=20), st.integers(0, 99))
def test_a_value_becomes_one_of_the_two_levels_around_it(
    word: Word, real: type, clip: float, fractions: list[float], seed: int
) -> None:
    quantizer = Quantizer.fit(word, 5, clip)
    values: NDArray[Any] = (np.array(fractions) * clip).astype(real)
    integers, clipped = quantizer.quantize(values, 1.0, rng(seed))
    for value, integer in zip(values.tolist(), integers.tolist(), strict=True):
        scaled = value * quantizer.scale
        slack = abs(scaled) * 2.0**-22  # Short limits round in float32.
        assert floor(scaled - slack) <= integer <= ceil(scaled + slack)
        assert abs(integer) <= quantizer.limit
    assert integers.dtype.kind == "i"
    assert clipped <= sum(abs(fraction) > 1 - 1e-6 for fraction in fractions)


@pytest.mark.parametrize("bits", SOME_WORDS)
@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("sign", [-1, 1])
def test_rounding_is_right_on_average(bits: int, fraction: float, sign: int) -> None:
    """A value between two levels goes up as often as it must; error rate 1e-6."""
    quantizer = Quantizer.fit(Word.of(bits), 1, 1.0)
    draws, scaled = 100_000, sign * (3 + fraction)
    integers, _ = quantizer.quantize(np.full(draws, scaled / quantizer.scale), 1.0, rng(bits))
    assert set(integers.tolist()) <= {floor(scaled), ceil(scaled)}
    deviation = sqrt(draws * fraction * (1 - fraction))
    # At a level itself nothing is random, up to the last bit of the product.
    statistics.assert_mean(float(integers.sum()), draws * scaled, deviation + 1)


@pytest.mark.parametrize("bits", SOME_WORDS)
def test_the_mean_of_a_whole_update_is_right(bits: int) -> None:
    """Values of both signs all over the range, each rounded on its own; error rate 1e-6."""
    quantizer = Quantizer.fit(Word.of(bits), 3, 1.0)
    values = rng(1).uniform(-1, 1, 200_000)
    integers, clipped = quantizer.quantize(values, 1.0, rng(2))
    error = integers - values * quantizer.scale
    assert clipped == 0
    # The variance of rounding is f(1 − f), 1/6 on average. Float32 adds at most 2^−9 of a level at its largest limits.
    statistics.assert_mean(float(error.sum()), 0, sqrt(len(values) / 6))
    assert np.abs(error).max() <= 1 + 2.0**-8


def test_two_draws_differ_and_one_seed_repeats() -> None:
    """Randomness is an argument."""
    quantizer = Quantizer.fit(Word.of(8), 3, 1.0)
    values = rng(1).uniform(-1, 1, 1000)
    first, again, other = (quantizer.quantize(values, 1.0, rng(seed))[0] for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("factor", [0.0, 0.25, 1.0])
def test_the_factor_scales_the_values(factor: float) -> None:
    """A weighted user sends its weight's share of the update."""
    quantizer = Quantizer.fit(Word.of(32), 3, 1.0)
    integers, _ = quantizer.quantize(np.array([0.5, -1.0]), factor, rng())
    assert np.abs(integers - factor * np.array([0.5, -1.0]) * quantizer.scale).max() <= 1


def test_the_update_itself_is_left_alone() -> None:
    for real in (np.float32, np.float64):
        for bits in (8, 32):
            values: NDArray[Any] = np.array([0.3, -9.0], real)
            Quantizer.fit(Word.of(bits), 3, 1.0).quantize(values, 0.5, rng())
            assert values.tolist() == np.array([0.3, -9.0], real).tolist()


@given(word_sizes, clips, st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_going_back_loses_at_most_one_level(word: Word, clip: float, fractions: list[float]) -> None:
    quantizer = Quantizer.fit(word, 3, clip)
    values = np.array(fractions) * clip
    integers, _ = quantizer.quantize(values, 1.0, rng())
    level = clip / quantizer.limit
    assert np.abs(quantizer.dequantize(integers.astype(np.int64)) - values).max() <= level * (1 + 2.0**-8)


# Clipping


@given(word_sizes, real_types, clips, st.lists(st.floats(-3, 3), min_size=1, max_size=20), st.integers(0, 99))
def test_nothing_is_ever_beyond_the_limit(
    word: Word, real: type, clip: float, multiples: list[float], seed: int
) -> None:
    """And every clipped value is counted."""
    quantizer = Quantizer.fit(word, 5, clip)
    multiples = [m for m in multiples if abs(abs(m) - 1) > 1e-3]  # Away from the edge, where floats decide.
    integers, clipped = quantizer.quantize((np.array(multiples) * clip).astype(real), 1.0, rng(seed))
    assert clipped == sum(abs(m) > 1 for m in multiples)
    for multiple, integer in zip(multiples, integers.tolist(), strict=True):
        assert abs(integer) <= quantizer.limit
        if abs(multiple) > 1:
            assert integer * multiple > 0
            assert abs(integer) >= quantizer.limit - 1


@pytest.mark.parametrize("bits", SOME_WORDS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_clipped_value_becomes_the_limit_whatever_the_draw(bits: int, sign: int) -> None:
    quantizer = Quantizer.fit(Word.of(bits), 5, 1.0)
    integers, clipped = quantizer.quantize(np.full(100_000, sign * 2.0), 1.0, rng())
    assert clipped == 100_000
    # A draw just below one may carry −limit up by one level; it can't carry anything beyond.
    assert integers.min() >= -quantizer.limit
    assert integers.max() <= quantizer.limit
    assert abs(integers.mean() - sign * quantizer.limit) < 0.01


def test_a_value_at_the_clip_is_not_clipped() -> None:
    for bits in WORD_BITS:
        _, clipped = Quantizer.fit(Word.of(bits), 4, 1.0).quantize(np.array([1.0, -1.0]), 1.0, rng())
        assert clipped == 0


# Steps


@pytest.mark.parametrize("bits", [8, 32])
def test_steps_piece_by_piece_are_those_of_the_whole(bits: int) -> None:
    """Select, clip, round: each counts what it cut off, and undone in reverse order they give the sum in reals."""
    quantizer = Quantizer.fit(Word.of(bits), 3, 2.0)
    values = rng(1).normal(0, 2, 400)
    values[5] = np.nan
    steps = quantizer.steps(0.5, rng(7))
    pieces: list[NDArray[Any]] = []
    for start in range(0, 400, 80):  # Whole draws of 64 bits, so that the randomness is cut alike.
        piece: NDArray[Any] = values[start : start + 80]
        for step in steps:
            piece = step.apply(piece)
        pieces.append(piece)
    whole, clipped = quantizer.quantize(values, 0.5, rng(7))
    assert np.concatenate(pieces).tolist() == whole.tolist()
    assert sum(step.clipped for step in steps) == clipped > 1
    expected = 0.5 * np.clip(np.nan_to_num(values), -2, 2)
    assert np.abs(quantizer.dequantize(whole) - expected).max() <= 2.0 / quantizer.limit * (1 + 2.0**-8)


# Bad input


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("bits", [5, 8, 16, 32])
def test_what_is_not_finite_counts_as_zero_and_as_clipped(bad: float, real: type, bits: int) -> None:
    """Wherever it stands: no answer of a user may depend on its data, and a NaN cast to an integer is any value."""
    quantizer = Quantizer.fit(Word.of(bits), 5, 1.0)
    for place in (0, 7, 99):
        values: NDArray[Any] = np.full(100, 1.0, real)
        values[place] = bad
        with np.errstate(invalid="raise"):
            integers, clipped = quantizer.quantize(values, 1.0, rng())
        assert integers.tolist() == [0 if each == place else quantizer.limit for each in range(100)]
        assert clipped == 1
        assert not np.isfinite(values[place]), "the update itself is left alone"


def test_what_is_not_finite_and_what_is_too_large_are_both_counted() -> None:
    quantizer = Quantizer.fit(Word.of(16), 5, 1.0)
    integers, clipped = quantizer.quantize(np.array([np.nan, 7.0, -np.inf, -1e300, 0.0]), 1.0, rng())
    assert integers.tolist() == [0, quantizer.limit, 0, -quantizer.limit, 0]
    assert clipped == 4


@pytest.mark.parametrize("bits", [5, 8, 16, 32])
def test_large_finite_values_are_clipped_and_counted(bits: int) -> None:
    """Also those that overflow while they are scaled."""
    quantizer = Quantizer.fit(Word.of(bits), 10, 1.0)
    values = np.array([1e39, -1e300, 1.7e308, 0.0])
    integers, clipped = quantizer.quantize(values, 1.0, np.random.default_rng(0))
    assert integers.tolist() == [quantizer.limit, -quantizer.limit, quantizer.limit, 0]
    assert clipped == 3


@pytest.mark.parametrize("level", [65_000, -65_000, 30_000, 7, 0])
def test_a_value_that_is_a_level_stays_where_it_is(level: int) -> None:
    """No rounding error pushes it up, however large it is."""
    quantizer = Quantizer(limit=65_535, scale=65_535.0)
    values = np.full(100_000, level / 65_535, np.float32)
    exact = np.full(100_000, level, np.float32)
    integers, _ = Quantizer(limit=65_535, scale=1.0).quantize(exact, 1.0, np.random.default_rng(1))
    assert (integers == level).all()
    assert np.abs(quantizer.quantize(values, 1.0, np.random.default_rng(1))[0] - level).max() <= 1


@pytest.mark.parametrize("bits", SOME_WORDS)
@pytest.mark.parametrize("huge", [1e39, -1e39, 3.5e38, 1.7e308, -1.7e308])
def test_a_weight_of_zero_makes_zero_of_any_finite_value(bits: int, huge: float) -> None:
    """Also of one beyond float32, which would be infinite there, and infinity times zero is no number."""
    integers, clipped = Quantizer.fit(Word.of(bits), 5, 1.0).quantize(np.array([huge, 1.0, 0.0]), 0.0, rng())
    assert integers.tolist() == [0, 0, 0]
    assert clipped == 0


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("weight", [0.5, 0.01, 1.0])
def test_a_value_is_clipped_before_its_weight_counts(bits: int, weight: float) -> None:
    """So a sum can be told from its weights: a light user with large values does not reach beyond its part."""
    quantizer = Quantizer.fit(Word.of(bits), 3, 2.0)
    integers, clipped = quantizer.quantize(np.array([2.0, -2.0, 30.0, -1e39, 1.0]), weight, rng())
    assert clipped == 2
    part = quantizer.limit * weight
    assert np.abs(integers - part * np.array([1, -1, 1, -1, 0.5])).max() <= 1 + 2.0**-8
    assert np.abs(integers).max() <= ceil(part)


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("clip", [1e-45, 1e-40, 1e-37, 1e37, 1e40])
def test_a_clip_beyond_float32_leaves_zero_at_zero(real: type, clip: float) -> None:
    """The scale is infinite or zero in float32, though not in float64."""
    quantizer = Quantizer.fit(Word.of(8), 5, clip)
    integers, clipped = quantizer.quantize(np.array([0.0, 1e-30, -1e-30], real), 1.0, rng())
    assert integers[0] == 0
    assert clipped == (2 if clip < 1e-30 else 0)
    if clip < 1e-30:
        assert integers.tolist() == [0, quantizer.limit, -quantizer.limit]


@pytest.mark.parametrize("factor", [np.inf, -np.inf, np.nan])
def test_a_scale_that_is_not_finite_is_refused(factor: float) -> None:
    """It comes from the run's parameters and never from data."""
    with pytest.raises(InvalidInput, match="must not be so small") as caught:
        Quantizer.fit(Word.of(8), 5, 1.0).quantize(np.zeros(3), factor, rng())
    assert caught.value.option == "clip"


@given(word_sizes, st.lists(st.floats(), min_size=1, max_size=10), st.data())
def test_whatever_it_is_it_becomes_an_integer_within_the_limit(
    word: Word, values: list[float], data: st.DataObject
) -> None:
    """For any weight and clip; nothing is ever cast from NaN or infinity."""
    quantizer = Quantizer.fit(word, 7, data.draw(st.floats(1e-30, 1e30)))
    factor = data.draw(st.sampled_from([0.0, 1.0, 2.0**-40]) | st.floats(2.0**-40, 1))
    with np.errstate(invalid="raise"):
        integers, clipped = quantizer.quantize(np.array(values), factor, rng())
    assert np.abs(integers).max() <= quantizer.limit
    finite = [value for value in values if isfinite(value)]
    beyond = [value * quantizer.scale / quantizer.limit if factor else 0.0 for value in finite]
    lost = len(values) - len(finite)
    assert sum(abs(b) > 1 + 1e-6 for b in beyond) <= clipped - lost <= sum(abs(b) > 1 - 1e-6 for b in beyond)


@pytest.mark.parametrize("clip", [0.1, 0.3, 0.7, 1e-3, 3.0])
def test_a_value_at_a_crooked_clip_is_not_counted_in_short_words(clip: float) -> None:
    """Though limit / clip may have been rounded up: callers clip first, and then nothing lies beyond."""
    for bits in (4, 5, 6, 8, 12):
        _, clipped = Quantizer.fit(Word.of(bits), 3, clip).quantize(np.array([clip, -clip]), 1.0, rng())
        assert clipped == 0
