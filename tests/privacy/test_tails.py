"""Exact tails against rational arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.privacy import tails


def binomial_below(trials: int, probability: Fraction, bound: int) -> Fraction:
    return sum(
        (
            math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k)
            for k in range(min(bound, trials + 1))
        ),
        Fraction(0),
    )


def hypergeometric_at_least(population: int, marked: int, draws: int, bound: int) -> Fraction:
    return sum(
        (
            Fraction(math.comb(marked, k) * math.comb(population - marked, draws - k), math.comb(population, draws))
            for k in range(max(0, bound), draws + 1)
        ),
        Fraction(0),
    )


def assert_log_equals(found: float, exact: Fraction) -> None:
    if exact == 0:
        assert found == -math.inf
    else:
        # Logarithms of numerator and denominator: the fraction itself may be below the floats.
        assert found == pytest.approx(math.log(exact.numerator) - math.log(exact.denominator), abs=1e-9)


@given(st.integers(0, 40), st.fractions(0, Fraction(1, 2), max_denominator=20), st.integers(-1, 45))
def test_binomial_tail_is_exact(trials, probability, bound) -> None:
    assert_log_equals(
        tails.log_binomial_below(trials, float(probability), bound),
        binomial_below(trials, probability, bound),
    )


@given(st.data())
def test_hypergeometric_tail_is_exact(data) -> None:
    population = data.draw(st.integers(1, 40))
    marked = data.draw(st.integers(0, population))
    draws = data.draw(st.integers(0, population))
    bound = data.draw(st.integers(-1, draws + 1))
    assert_log_equals(
        tails.log_hypergeometric_at_least(population, marked, draws, bound),
        hypergeometric_at_least(population, marked, draws, bound),
    )


def test_far_tails_keep_their_digits() -> None:
    exact = hypergeometric_at_least(10_000, 1000, 400, 300)
    assert exact < Fraction(1, 2**500)
    assert_log_equals(tails.log_hypergeometric_at_least(10_000, 1000, 400, 300), exact)


@given(st.integers(0, 30), st.lists(st.integers(-3, 33), max_size=8))
def test_binomial_coefficients_are_zero_outside_their_range(whole, parts) -> None:
    found = tails.log_choose(whole, np.array(parts, dtype=np.int64))
    assert [round(math.exp(one)) for one in found] == [math.comb(whole, k) if k >= 0 else 0 for k in parts]


def test_a_union_bound_is_never_above_one_nor_below_the_sum() -> None:
    assert tails.log_union(math.log(0.5), 3) == 0.0
    assert tails.log_union(-math.inf, 3) == -math.inf
    assert math.exp(tails.log_union(math.log(0.1), 3)) == pytest.approx(0.3, rel=1e-5)
    assert math.exp(tails.log_union(math.log(0.1), 3)) > 0.3
