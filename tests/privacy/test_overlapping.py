"""Bounds for overlapping committees: exact against rational arithmetic, and never below sampled rounds."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.sampling import assert_not_exceeded, sampled_rounds, thinnest
from sparsesecagg.patterns.tails import log_union
from sparsesecagg.privacy import overlapping


def binomial_below(trials: int, probability: Fraction, bound: int) -> Fraction:
    return sum(
        (
            math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k)
            for k in range(min(bound, trials + 1))
        ),
        Fraction(0),
    )


def honest_survivors_below(clients: int, colluders: int, size: int, dropout: Fraction, needed: int) -> Fraction:
    honest = clients - colluders
    return sum(
        (
            Fraction(math.comb(honest, h) * math.comb(colluders, size - h), math.comb(clients, size))
            * binomial_below(h, 1 - dropout, needed)
            for h in range(size + 1)
        ),
        Fraction(0),
    )


def assert_log_equals(found: float, exact: Fraction) -> None:
    if exact == 0:
        assert found == -math.inf
    else:
        # Logarithms of numerator and denominator: the fraction itself may be below the floats.
        assert found == pytest.approx(math.log(exact.numerator) - math.log(exact.denominator), abs=1e-9)


rates = st.fractions(0, Fraction(1, 2), max_denominator=20)


@given(st.integers(0, 30), rates, st.integers(0, 32))
def test_tails_for_all_numbers_of_trials_agree_with_single_ones(most, probability, bound):
    each = overlapping.log_binomial_below_each(most, 1 - float(probability), bound)
    assert len(each) == most + 1
    for trials in range(most + 1):
        assert_log_equals(each[trials], binomial_below(trials, 1 - probability, bound))


@given(st.data())
def test_honest_survivors_of_a_committee_are_exact(data):
    clients = data.draw(st.integers(1, 30))
    colluders = data.draw(st.integers(0, clients))
    size = data.draw(st.integers(1, clients))
    needed = data.draw(st.integers(0, size + 1))
    dropout = data.draw(rates)
    found = overlapping.log_honest_survivors_below(clients, colluders, size, float(dropout), needed)
    assert_log_equals(found, honest_survivors_below(clients, colluders, size, dropout, needed))


def test_far_tails_keep_their_digits():
    dropout = Fraction(1, 10)
    exact = honest_survivors_below(300, 30, 200, dropout, 5)
    assert exact < Fraction(1, 2**500)
    assert_log_equals(overlapping.log_honest_survivors_below(300, 30, 200, 0.1, 5), exact)


@pytest.mark.parametrize(
    ("clients", "dropout", "colluding", "size"),
    [(100, 0.1, 0.1, 27), (300, 0.1, 0.1, 29), (1000, 0.1, 0.1, 29), (1000, 0.3, 1 / 3, 73)],
)
def test_committee_sizes_of_the_design_brief(clients, dropout, colluding, size):
    """At least 5 honest survivors in 160 blocks but for 2^−40: hypergeometric honesty × binomial survival."""

    def failure_log2(members: int) -> float:
        one = overlapping.log_honest_survivors_below(clients, round(colluding * clients), members, dropout, 5)
        return log_union(one, 160) / math.log(2)

    assert failure_log2(size) <= -40 < failure_log2(size - 1)


@given(st.data())
def test_privacy_only_gets_worse_with_more_groups_colluders_dropouts_or_a_higher_demand(data):
    clients = data.draw(st.integers(6, 120))
    groups = data.draw(st.integers(1, clients // 3))
    colluders = data.draw(st.integers(0, clients // 2))
    dropout = data.draw(st.floats(0.0, 0.45))
    anonymity = data.draw(st.integers(1, 10))

    def failure(
        groups: int = groups, colluders: int = colluders, dropout: float = dropout, anonymity: int = anonymity
    ) -> float:
        return overlapping.log_privacy_failure(
            clients, colluders, Fraction(1, groups), 4, dropout=dropout, anonymity=anonymity
        )

    here = failure() - 1e-9
    assert failure(groups=groups + 1) >= here
    assert failure(colluders=colluders + 1) >= here
    assert failure(dropout=dropout + 0.05) >= here
    assert failure(anonymity=anonymity + 1) >= here


@pytest.mark.parametrize(
    ("clients", "colluding", "dropout", "share", "anonymity"),
    [
        *[(60, 0.1, 0.1, "1/4", 7), (50, 0.3, 0.3, "1/3", 2), (40, 0.0, 0.3, "1/4", 2), (31, 0.2, 0.2, "1/3", 2)],
        *[(25, 0.2, 0.2, "2/5", 2), (37, 0.1, 0.3, "3/10", 2)],
    ],
)
def test_privacy_bound_is_never_below_the_sampled_frequency(clients, colluding, dropout, share, anonymity):
    """Failures around 2^−8 are sampled in whole rounds: committees, colluders and dropouts of all stripes."""
    draws, stripes, colluders, share = 20_000, 4, round(colluding * clients), Fraction(share)
    arc_of, survives = sampled_rounds(clients, share, stripes, dropout, draws=draws, seed=clients)
    honest = survives & (np.arange(clients) >= colluders)
    failed = np.any([thinnest(of, honest, share) < anonymity for of in arc_of], axis=0)
    bound = math.exp(
        overlapping.log_privacy_failure(clients, colluders, share, stripes, dropout=dropout, anonymity=anonymity)
    )
    assert_not_exceeded(bound, int(failed.sum()), draws)
    assert 2**-10 < failed.mean() < 2**-5  # It is an event that sampling can see ...
    assert bound < 4 * failed.mean()  # ... and the bound is not an idle one.


@pytest.mark.parametrize(("clients", "share"), [(40, Fraction(1, 4)), (25, Fraction(2, 5))])
def test_refusal_bound_is_never_below_the_sampled_frequency(clients, share):
    stripes, dropout, least, draws = 4, 0.3, 4, 20_000
    arc_of, survives = sampled_rounds(clients, share, stripes, dropout, draws=draws, seed=7)
    refused = np.any([thinnest(of, survives, share) < least for of in arc_of], axis=0)
    one = overlapping.log_refusal(clients, share, dropout, least)
    bound = overlapping.independent_or_better((one, overlapping.distinct_blocks(share, stripes)))
    assert_not_exceeded(bound, int(refused.sum()), draws)
    assert refused.mean() < bound < min(4 * refused.mean(), share.denominator * stripes * math.exp(one))


def test_everybody_is_one_committee_however_many_stripes():
    assert overlapping.distinct_blocks(Fraction(1), 4) == 1
    assert overlapping.distinct_blocks(Fraction(1, 3), 4) == 12
    assert overlapping.distinct_blocks(Fraction(2, 5), 4) == 20


def test_certain_and_impossible_failures():
    assert overlapping.independent_or_better((0.0, 3)) == 1.0
    assert overlapping.independent_or_better((-math.inf, 3)) == 0.0
    assert overlapping.independent_or_better((math.log(0.5), 2)) == pytest.approx(0.75, rel=1e-5)
