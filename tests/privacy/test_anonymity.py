"""What groups promise: exact on small cases, and the design's own figures."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.groups import group_sizes
from sparsesecagg.privacy.anonymity import (
    MAX_EPOCHS,
    SERVER_MODELS,
    ServerModel,
    available_threshold,
    colluder_count,
    colluders_in_a_group,
    default_threshold,
    excess_log2,
    failed_rounds,
    honest_in_sum,
    least_threshold,
    log_binomial,
    log_binomial_below,
    log_choose,
    log_hypergeometric_at_least,
    log_union,
    planned_colluders,
    promise,
)

TENTH = Fraction(1, 10)


def exactly_failed(size: int, threshold: int, dropout: Fraction) -> Fraction:
    """P[fewer than t of P users stay], term by term, each with probability (1 − θ²)(1 − θ)."""
    stays = (1 - dropout**2) * (1 - dropout)
    return sum(
        (math.comb(size, k) * stays**k * (1 - stays) ** (size - k) for k in range(threshold)),
        Fraction(0),
    )


def exactly_more(sizes: tuple[int, ...], colluders: int, most: int) -> Fraction:
    """Σ over groups of P[more than `most` of the colluders are in it], if groups are drawn at random."""
    clients = sum(sizes)
    return sum(
        (
            Fraction(math.comb(colluders, k) * math.comb(clients - colluders, size - k), math.comb(clients, size))
            for size in sizes
            for k in range(most + 1, min(size, colluders) + 1)
        ),
        Fraction(0),
    )


def log2(value: Fraction) -> float:
    """Logarithms of numerator and denominator: the fraction itself may be below the floats."""
    return math.log2(value.numerator) - math.log2(value.denominator) if value else -math.inf


# The figures of the design: θ = γ = 0.1, 2^−40 per run with 16 draws


@pytest.mark.parametrize(
    ("clients", "groups", "colluders", "of_the_design", "by_default"),
    [
        (10, 1, 1, (7, 5), (7, 5)),
        (25, 1, 3, (18, 12), (19, 14)),  # 2.5 colluders are counted as three.
        (50, 1, 5, (39, 31), (40, 33)),
        (100, 1, 10, (81, 66), (82, 68)),
        (300, 3, 28, (81, 47), (82, 48)),
        (1000, 10, 36, (81, 37), (82, 39)),
        (1000, 13, 32, (61, 21), (62, 23)),  # The groups of 77 decide.
        (10_000, 100, 40, (81, 33), (82, 35)),
    ],
)
def test_the_table_of_the_design(
    clients: int, groups: int, colluders: int, of_the_design: tuple[int, int], by_default: tuple[int, int]
) -> None:
    """Threshold and honest users in every sum; from 25 users on the design's own t fails in one percent, not two."""
    sizes = group_sizes(clients, groups)
    assert default_threshold(min(sizes), max(sizes), 0.1, 0.1) == by_default[0]
    for threshold, anonymity in (of_the_design, by_default):
        kept = promise(sizes, threshold, colluder_count(clients, 0.1), "malicious", -40)
        assert (kept.colluders, kept.anonymity) == (colluders, anonymity)
        assert kept.failure_log2 <= -40


@pytest.mark.parametrize(("size", "threshold", "percent"), [(3, 3, 29), (5, 4, 9.5), (10, 7, 1.7)])
def test_small_groups_fail_often(size: int, threshold: int, percent: float) -> None:
    assert default_threshold(size, size, 0.1, 0.0) == threshold
    assert 100 * failed_rounds(size, threshold, 0.1) == pytest.approx(percent, abs=0.5)


# Thresholds


@given(st.integers(1, 60), st.data())
@settings(max_examples=50)
def test_failed_rounds_are_an_exact_binomial(size: int, data: st.DataObject) -> None:
    threshold, percent = data.draw(st.integers(0, size)), data.draw(st.integers(0, 49))
    exact = exactly_failed(size, threshold, Fraction(percent, 100))
    assert failed_rounds(size, threshold, percent / 100) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("size", [3, 10, 25, 50, 100])
@pytest.mark.parametrize("percent", [1, 10, 30])
def test_the_default_fails_in_at_most_two_percent_of_the_rounds_and_one_more_in_more(size: int, percent: int) -> None:
    found = available_threshold(size, percent / 100)
    dropout = Fraction(percent, 100)
    assert found == 1 or exactly_failed(size, found, dropout) <= Fraction(1, 50)
    assert found == size or exactly_failed(size, found + 1, dropout) > Fraction(1, 50)


@pytest.mark.parametrize("size", [25, 50, 100])
def test_large_groups_have_the_largest_threshold_that_dropouts_allow(size: int) -> None:
    largest = max(t for t in range(1, size + 1) if exactly_failed(size, t, TENTH) <= Fraction(1, 50))
    assert default_threshold(size, size, 0.1, 0.1) == largest


@pytest.mark.parametrize("size", range(3, 30))
@pytest.mark.parametrize("colluding", [0.0, 0.1, 0.3])
def test_no_default_hides_nobody(size: int, colluding: float) -> None:
    """Two honest users in every sum against a malicious server, or everybody must stay."""
    colluders = planned_colluders(size, colluding)
    threshold = least_threshold(size, colluders)
    keeps = [t for t in range(1, size + 1) if honest_in_sum(size, t, colluders, "malicious") >= 2]
    assert threshold == (keeps[0] if keeps else size)
    assert size >= default_threshold(size, size, 0.3, colluding) >= threshold


def test_a_run_without_dropouts_survives_one() -> None:
    assert default_threshold(100, 100, 0.0, 0.0) < 100


def test_of_two_sizes_the_smaller_must_stay_and_the_larger_be_kept() -> None:
    assert default_threshold(76, 77, 0.1, 0.1) == min(76, max(available_threshold(76, 0.1), least_threshold(77, 8)))


@pytest.mark.parametrize(
    ("users", "colluding", "count"), [(10, 0.1, 1), (25, 0.1, 3), (24, 0.1, 2), (3, 0.1, 0), (0, 0.3, 0)]
)
def test_colluders_are_rounded_to_the_nearest_halves_up(users: int, colluding: float, count: int) -> None:
    assert colluder_count(users, colluding) == count
    assert planned_colluders(users, colluding) == max(1, count)


# Honest users in a sum. tests/protocol tries every lie in small groups.


@given(st.integers(3, 60), st.data())
def test_a_malicious_server_never_leaves_more_and_more_colluders_never_help(size: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, size))
    colluders = data.draw(st.integers(0, size))
    malicious, semi_honest = (honest_in_sum(size, threshold, colluders, server) for server in SERVER_MODELS)
    assert 0 <= malicious <= semi_honest == max(0, threshold - colluders)
    assert honest_in_sum(size, threshold, colluders + 1, "malicious") <= malicious
    if 2 * threshold <= size + colluders:
        assert malicious == 0, "one user can be read"
    if threshold == size:
        assert malicious == (semi_honest if 2 * threshold > size + colluders else 0), "nobody can be left out"


def test_server_models_are_the_two_of_the_design() -> None:
    assert set(SERVER_MODELS) == set(get_args(ServerModel)) == {"malicious", "semi-honest"}
    wrong: Any = "lying"
    with pytest.raises(InvalidInput, match="server must be one of malicious, semi-honest, got 'lying'"):
        honest_in_sum(10, 7, 1, wrong)


# Colluders in a group


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    clients = draw(st.integers(6, 40))
    sizes = group_sizes(clients, draw(st.integers(2, clients // 3)))
    return sizes, draw(st.integers(0, clients))


@given(cohorts(), st.integers(-1, 41))
@settings(max_examples=150)
def test_the_chance_of_more_is_exact_but_for_the_union_over_groups_and_draws(
    cohort: tuple[tuple[int, ...], int], most: int
) -> None:
    """Never below it, and a millionth above it at most."""
    sizes, colluders = cohort
    exact = min(Fraction(1), MAX_EPOCHS * exactly_more(sizes, colluders, most))
    found = excess_log2(sizes, colluders, most)
    assert found == -math.inf if exact == 0 else log2(exact) <= found + 1e-12 <= log2(exact) + 1e-5


@given(cohorts(), st.integers(-60, 0))
@settings(max_examples=150)
def test_as_many_colluders_are_allowed_for_as_the_chance_asks(
    cohort: tuple[tuple[int, ...], int], failure_log2: int
) -> None:
    sizes, colluders = cohort
    allowed = Fraction(2) ** failure_log2
    found = colluders_in_a_group(sizes, colluders, failure_log2)
    assert MAX_EPOCHS * exactly_more(sizes, colluders, found) <= allowed or failure_log2 == 0
    if found:
        # One fewer would be too few, but for the rounding that is charged.
        assert MAX_EPOCHS * exactly_more(sizes, colluders, found - 1) * Fraction(100_001, 100_000) > allowed


def test_one_group_has_all_colluders_and_nothing_is_charged() -> None:
    for colluders in (0, 3, 40):
        assert colluders_in_a_group((100,), colluders, -1000) == colluders
    kept = promise((100,), 81, 10, "malicious", -1000)
    assert (kept.anonymity, kept.colluders, kept.failure_log2) == (66, 10, -math.inf)


def test_several_groups_are_charged_sixteen_draws() -> None:
    """All draws of a run are known at once, so a server takes the best of them: four bits."""
    sizes = (50, 50)
    once = log2(exactly_more(sizes, 10, 9))
    assert MAX_EPOCHS == 16
    assert excess_log2(sizes, 10, 9) == pytest.approx(once + 4, abs=1e-5)
    assert promise(sizes, 40, 10, "malicious", once + 4.001).colluders == 9
    assert promise(sizes, 40, 10, "malicious", once + 3.999).colluders == 10


@given(cohorts(), st.data())
def test_a_promise_is_that_of_the_worst_group(cohort: tuple[tuple[int, ...], int], data: st.DataObject) -> None:
    sizes, colluders = cohort
    threshold = data.draw(st.integers(1, min(sizes)))
    server = data.draw(st.sampled_from(SERVER_MODELS))
    kept = promise(sizes, threshold, colluders, server, -20)
    most = kept.colluders
    assert kept.anonymity == min(honest_in_sum(size, threshold, min(most, size), server) for size in sizes)
    assert kept.failure_log2 <= -20


@pytest.mark.parametrize("colluders", [-1, 21])
def test_impossible_colluders_are_refused(colluders: int) -> None:
    with pytest.raises(InvalidInput, match=f"colluders must be from 0 to the 20 users, got {colluders}"):
        promise((10, 10), 7, colluders, "malicious", -40)


# Exact tails against rational arithmetic


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
        log_binomial_below(trials, float(probability), bound),
        binomial_below(trials, probability, bound),
    )


@given(st.data())
def test_hypergeometric_tail_is_exact(data) -> None:
    population = data.draw(st.integers(1, 40))
    marked = data.draw(st.integers(0, population))
    draws = data.draw(st.integers(0, population))
    bound = data.draw(st.integers(-1, draws + 1))
    assert_log_equals(
        log_hypergeometric_at_least(population, marked, draws, bound),
        hypergeometric_at_least(population, marked, draws, bound),
    )


def test_far_tails_keep_their_digits() -> None:
    exact = hypergeometric_at_least(10_000, 1000, 400, 300)
    assert exact < Fraction(1, 2**500)
    assert_log_equals(log_hypergeometric_at_least(10_000, 1000, 400, 300), exact)


@given(st.integers(0, 30), st.lists(st.integers(-3, 33), max_size=8))
def test_binomial_coefficients_are_zero_outside_their_range(whole, parts) -> None:
    found = log_choose(whole, np.array(parts, dtype=np.int64))
    assert [round(math.exp(one)) for one in found] == [math.comb(whole, k) if k >= 0 else 0 for k in parts]


def test_a_union_bound_is_never_above_one_nor_below_the_sum() -> None:
    assert log_union(math.log(0.5), 3) == 0.0
    assert log_union(-math.inf, 3) == -math.inf
    assert math.exp(log_union(math.log(0.1), 3)) == pytest.approx(0.3, rel=1e-5)
    assert math.exp(log_union(math.log(0.1), 3)) > 0.3


def test_one_group_has_all_colluders_for_certain() -> None:
    assert excess_log2((10,), 3, 2) == 0.0
    assert excess_log2((10,), 3, 3) == -math.inf


def test_binomial_coefficients_and_certain_tails_are_exact() -> None:
    assert np.exp(log_choose(10, np.array([0, 3, 10, 11]))) == pytest.approx([1, 120, 1, 0])
    assert log_hypergeometric_at_least(10, 4, 5, 0) == 0.0
    assert np.exp(log_hypergeometric_at_least(10, 4, 5, 4)) == pytest.approx(6 / 252)
    assert np.exp(log_binomial(3, np.arange(4), 0.0)).tolist() == [1, 0, 0, 0]
    assert np.exp(log_binomial(3, np.arange(4), 1.0)).tolist() == [0, 0, 0, 1]
    assert log_binomial_below(5, 0.3, 6) == 0.0
