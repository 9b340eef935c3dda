"""The paper's formulas, against plain enumeration, simulation, and figures measured elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.theory import formulas
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.audit import theory
from sparsesecagg.privacy.anonymity import colluder_count

cohorts = st.integers(4, 300)
alphas = st.floats(0.01, 1.0)


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


@pytest.mark.parametrize(
    ("alpha", "dropout", "colluding", "contributors"),
    [(0.1, 0.0, 0.0, 9.5), (0.1, 0.3, 0.0, 6.7), (0.1, 0.3, 1 / 3, 4.5), (0.2, 0.3, 1 / 3, 8.5)],
)
def test_anonymity_as_the_paper_counts_it(alpha: float, dropout: float, colluding, contributors: float) -> None:
    finite = formulas.anonymity(alpha, 100, dropout, colluding)
    assert finite == pytest.approx(contributors, abs=0.06)


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
    assert formulas.pairwise_singled_out_fraction(*setting) == pytest.approx(singled_out, rel=0.2, abs=1e-12)
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
    assert singled_out.sum() / total == pytest.approx(formulas.pairwise_singled_out_fraction(*setting), rel=0.03)


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (lambda: theory.selection_probability(0.0, 10), "alpha"),
        (lambda: theory.selection_probability(0.5, 1), "clients"),
    ],
)
def test_values_outside_the_theory_are_refused_by_name(call, option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert caught.value.option == option
