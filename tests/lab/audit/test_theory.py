"""The paper's formulas, against plain enumeration, simulation, and figures measured elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.anonymity import colluder_count
from sparsesecagg.patterns.sizes import even_parts
from sparsesecagg.lab.audit import theory

cohorts = st.integers(4, 300)
alphas = st.floats(0.01, 1.0)
rates = st.floats(0.0, 0.49)


@pytest.mark.parametrize(("clients", "colluding", "expected"), [(1000, 1 / 3, 333), (20, 1 / 3, 7), (25, 0.1, 3)])
def test_colluders_are_rounded_to_the_nearest_with_halves_up(clients: int, colluding, expected: int) -> None:
    assert colluder_count(clients, colluding) == expected


@given(cohorts, st.floats(0.0, 0.4999))
def test_colluders_stay_below_a_majority(clients, colluding) -> None:
    assert colluder_count(clients, colluding) < clients // 2 + 1


def test_p_is_the_chance_of_at_least_one_edge() -> None:
    # Three users, two possible partners: 1 − (1 − 0.25)².
    assert theory.selection_probability(0.5, 3) == pytest.approx(0.4375)
    assert theory.selection_probability(1.0, 2) == 1.0


@given(cohorts, alphas)
def test_p_lies_between_its_limit_and_alpha(clients, alpha) -> None:
    assert -math.expm1(-alpha) <= theory.selection_probability(alpha, clients) <= alpha + 1e-12


@pytest.mark.parametrize("clients", [3, 5])
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_joint_selection_equals_enumeration_of_all_graphs(clients: int, alpha: float) -> None:
    pairs = [(i, j) for i in range(clients) for j in range(i)]
    edge = alpha / (clients - 1)
    both = 0.0
    for bits in range(1 << len(pairs)):
        present = [pair for place, pair in enumerate(pairs) if bits >> place & 1]
        if {0, 1} <= {user for pair in present for user in pair}:
            both += edge ** len(present) * (1 - edge) ** (len(pairs) - len(present))
    assert theory.pairwise_moments(alpha, clients, dropout=0.0).joint == pytest.approx(both)
    assert theory.pairwise_moments(alpha, clients, dropout=0.3).joint == pytest.approx(0.49 * both)


def drawn_groups(clients, committees, draws, seed):
    """Return each user's committee in many draws, shape (draws, clients)."""
    rng = np.random.default_rng(seed)
    order = np.repeat(np.arange(committees), even_parts(clients, committees))
    return rng.permuted(np.tile(order, (draws, 1)), axis=1)


@pytest.mark.parametrize(
    ("clients", "committees", "served"), [(12, 3, 1), (11, 4, 1), (7, 1, 1), (25, 5, 2), (13, 6, 3)]
)
def test_committee_moments_match_drawn_committees(clients: int, committees: int, served: int) -> None:
    draws = 20_000
    committee_of = drawn_groups(clients, committees, draws, seed=1)
    # A random slice of a round, and the committees that send it.
    first = np.random.default_rng(2).integers(committees, size=draws)[:, None]
    sends = (committee_of - first) % committees < served
    moments = theory.committee_moments(clients, committees, served, dropout=0.0)
    # Five standard errors of a frequency: a false alarm in two million.
    tolerance = 5 / (2 * math.sqrt(draws))
    assert sends[:, 0].mean() == pytest.approx(moments.participation, abs=tolerance)
    assert (sends[:, 0] & sends[:, 1]).mean() == pytest.approx(moments.joint, abs=tolerance)
    assert moments.participation == served / committees


@given(st.integers(2, 20), st.integers(4, 30), rates, st.integers(0, 2**32))
def test_committees_of_four_or_more_never_have_more_variance_than_pairwise(groups, size, dropout, seed) -> None:
    """Lemma 2 before its inequalities, at the same α and for any contributions of any sign."""
    clients = groups * size
    contributions = np.random.default_rng(seed).normal(size=clients)
    committee = theory.committee_moments(clients, groups, 1, dropout)
    pairwise = theory.pairwise_moments(1 / groups, clients, dropout)
    assert theory.sampling_variance(committee, contributions) <= theory.sampling_variance(pairwise, contributions)


def test_sampling_variance_matches_simulated_committees_with_dropouts() -> None:
    rng = np.random.default_rng(2)
    clients, groups, dropout, draws = 12, 3, 0.3, 40_000
    contributions = rng.normal(size=clients)
    members = rng.permuted(np.tile(np.arange(clients) < clients // groups, (draws, 1)), axis=1)
    present = members & (rng.random((draws, clients)) >= dropout)
    moments = theory.committee_moments(clients, groups, 1, dropout)
    sums = present @ contributions / moments.participation
    assert sums.mean() == pytest.approx(contributions.sum(), abs=5 * sums.std() / math.sqrt(draws))
    assert sums.var() == pytest.approx(theory.sampling_variance(moments, contributions), rel=0.05)


@pytest.mark.parametrize(
    ("alpha", "dropout", "colluding", "contributors"),
    [(0.1, 0.0, 0.0, 9.5), (0.1, 0.3, 0.0, 6.7), (0.1, 0.3, 1 / 3, 4.5), (0.2, 0.3, 1 / 3, 8.5)],
)
def test_anonymity_as_the_paper_counts_it(alpha: float, dropout: float, colluding, contributors: float) -> None:
    finite = theory.anonymity(alpha, 100, dropout, colluding)
    assert finite == pytest.approx(contributors, abs=0.06)
    assert theory.anonymity_limit(alpha, 100, dropout, colluding) < finite
    moments = theory.pairwise_moments(alpha, 100, dropout)
    assert theory.expected_contributors(moments, 100) * (1 - colluding) == pytest.approx(finite)


@pytest.mark.parametrize(
    ("alpha", "dropout", "colluding", "singled_out", "revealed"),
    [
        (0.1, 0.0, 0.0, 0.0, 0.0),
        (0.1, 0.3, 0.0, 0.004, 0.285),
        (0.1, 0.3, 1 / 3, 0.016, 0.515),
        (0.2, 0.3, 1 / 3, 0.0005, 0.51),
    ],
)
def test_what_pairwise_reveals_agrees_with_an_independent_simulation(
    alpha: float, dropout: float, colluding, singled_out: float, revealed: float
) -> None:
    """The figures of the design brief, which were simulated for N = 100."""
    setting = (alpha, 100, dropout, colluding)
    assert theory.pairwise_singled_out_fraction(*setting) == pytest.approx(singled_out, rel=0.2, abs=1e-12)
    assert theory.pairwise_revealed_fraction(*setting) == pytest.approx(revealed, rel=0.03, abs=1e-12)


def test_singled_out_and_revealed_match_simulated_graphs() -> None:
    rng = np.random.default_rng(3)
    clients, alpha, dropout, colluding, draws = 12, 0.8, 0.3, 0.25, 60_000
    colluders = colluder_count(clients, colluding)
    upper = np.triu(rng.random((draws, clients, clients)) < alpha / (clients - 1), 1)
    edges = upper | upper.transpose(0, 2, 1)
    good = rng.random((draws, clients)) >= dropout
    good[:, :colluders] = False  # Honest survivors are what is left.
    sends = edges.any(axis=2)
    values = good & sends
    revealed = values & ~(edges & good[:, None, :]).any(axis=2)
    singled_out = values & (values.sum(axis=1, keepdims=True) == 1)
    total = values.sum()
    # Values of one coordinate depend on each other, so the tolerance is a generous 3 % of the fraction.
    setting = (alpha, clients, dropout, colluding)
    assert revealed.sum() / total == pytest.approx(theory.pairwise_revealed_fraction(*setting), rel=0.03)
    assert singled_out.sum() / total == pytest.approx(theory.pairwise_singled_out_fraction(*setting), rel=0.03)


def test_committees_reveal_what_the_design_brief_measured() -> None:
    """N = 100, m = 10, θ = 0.3: 0.003 % without colluders, 0.3 % with a third colluding."""
    assert theory.committee_revealed_fraction(100, 10, 0.3, 0.0) == pytest.approx(0.3**9, rel=1e-9)
    assert 0.0025 < theory.committee_revealed_fraction(100, 10, 0.3, 1 / 3) < 0.0035
    assert theory.committee_revealed_fraction(100, 5, 0.3, 1 / 3) < 2e-5


def test_a_committee_that_must_have_survivors_reveals_less() -> None:
    fractions = [theory.committee_revealed_fraction(100, 10, 0.3, 1 / 3, least) for least in (1, 5, 7, 10)]
    assert fractions == sorted(fractions, reverse=True)
    assert fractions[-1] < fractions[0] / 3
    assert theory.committee_revealed_fraction(100, 10, 0.3, 0.0, 2) == 0


@pytest.mark.parametrize(("clients", "committees", "least"), [(12, 3, 1), (11, 3, 2), (13, 4, 2)])
def test_committee_revealed_fraction_matches_drawn_committees(clients: int, committees: int, least: int) -> None:
    dropout, colluding, draws = 0.4, 0.3, 40_000
    committee_of = drawn_groups(clients, committees, draws, seed=6)
    colludes = np.arange(clients) < colluder_count(clients, colluding)
    survives = (np.random.default_rng(7).random((draws, clients)) >= dropout) | colludes
    alone, values = np.zeros((2, draws))
    for number, size in enumerate(even_parts(clients, committees)):
        here = (committee_of == number) & survives
        honest = (here & ~colludes).sum(axis=1)
        opened = here.sum(axis=1) >= -(-least * size // (clients // committees))
        values += honest * opened
        alone += (honest == 1) & opened
    expected = theory.committee_revealed_fraction(clients, committees, dropout, colluding, least)
    tolerance = 5 * np.std(alone - expected * values) / math.sqrt(draws) / values.mean()
    assert alone.sum() / values.sum() == pytest.approx(expected, abs=tolerance)
    assert expected > 5 * tolerance


@given(cohorts, alphas, st.integers(1, 10**6), st.floats(1e-4, 0.5))
def test_the_kl_form_of_theorem_1_is_never_looser_than_hoeffdings(clients, alpha, dim, epsilon) -> None:
    kl = theory.oversize_probability(alpha, clients, dim, epsilon)
    assert kl <= theory.oversize_probability(alpha, clients, dim, epsilon, "hoeffding") * (1 + 1e-9)


def test_theorem_1_bounds_the_sampled_sizes() -> None:
    rng = np.random.default_rng(4)
    clients, alpha, dim, epsilon = 20, 0.3, 200, 0.05
    p = theory.selection_probability(alpha, clients)
    frequency = float(np.mean(rng.binomial(dim, p, 20_000) > (p + epsilon) * dim))
    assert frequency <= theory.oversize_probability(alpha, clients, dim, epsilon)
    assert frequency > 0


def test_nobody_sends_more_than_the_whole_model() -> None:
    assert theory.oversize_probability(1.0, 2, 10, 0.1) == 0.0


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (lambda: theory.selection_probability(0.0, 10), "alpha"),
        (lambda: theory.selection_probability(0.5, 1), "clients"),
        (lambda: theory.committee_moments(5, 6, 1, 0.1), "committees"),
        (lambda: theory.committee_moments(12, 3, 4, 0.1), "served"),
        (lambda: theory.committee_revealed_fraction(100, 0, 0.1, 0.1), "committees"),
        (lambda: theory.oversize_probability(0.5, 10, 10, 0.0), "epsilon"),
    ],
)
def test_values_outside_the_theory_are_refused_by_name(call, option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert caught.value.option == option
