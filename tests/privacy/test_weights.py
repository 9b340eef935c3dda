"""Private weights: a user has the same one in all its blocks, so the blocks' sums must not be solvable for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesecagg.patterns import served_fraction, smallest_committee
from sparsesecagg.privacy.view import View
from sparsesecagg.protocol import RoundParameters, Transcript, run_round
from sparsesecagg.protocol.simulation import entropy_of_round


def serving(params: RoundParameters, weights: list[int] | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return who serves which block of a real round (blocks × users), and the sums of weights that it opened."""
    transcript = Transcript()
    outcome = run_round(
        params,
        lambda user: np.zeros(params.dim),
        weights=weights,
        entropy_of=entropy_of_round(3, 0),
        transcript=transcript,
    )
    pattern = View(transcript, {}).members.pattern
    users = np.arange(params.clients)
    rows = np.array([np.isin(users, pattern.committee(block)) for block in range(params.layout.blocks)])
    return rows.astype(float), outcome.result.weight_per_block


def solved(serves: np.ndarray) -> int:
    """How many users' integers follow from their sums over the committees, by linear algebra."""
    _, sizes, directions = np.linalg.svd(serves)
    rank = int((sizes > 1e-9).sum())
    return int((np.sum(directions[:rank] ** 2, axis=0) > 1 - 1e-9).sum())


@pytest.mark.parametrize("alpha", [0.2, 0.3, 0.4, 1.0])
def test_no_weight_follows_from_the_sums_of_a_round(alpha):
    weights = np.random.default_rng(4).integers(1, 101, 25).tolist()
    params = RoundParameters.create(clients=25, dim=300, alpha=alpha, max_weight=100, modulus_bits=16)
    serves, sums = serving(params, weights)
    assert (serves.sum(axis=0) == 1).all(), "everybody serves once"
    assert sums.tolist() == (serves @ np.array(weights)).tolist()
    assert solved(serves) == 0


def test_overlapping_committees_would_give_all_weights_away():
    params = RoundParameters.create(clients=25, dim=300, alpha=0.3, modulus_bits=16)
    serves, _ = serving(params, None)
    assert solved(serves) == 25


@settings(max_examples=200)
@given(clients=st.integers(3, 3000), alpha=st.floats(0.001, 1))
def test_disjoint_committees_are_no_smaller_than_asked_for(clients, alpha):
    if alpha * clients < 3:
        return
    params = RoundParameters.create(clients=clients, dim=50, alpha=alpha, max_weight=1, modulus_bits=32)
    assert served_fraction(params.pattern_settings).numerator == 1
    assert smallest_committee(params.pattern_settings) >= int(alpha * clients * (1 - 1e-6))


@pytest.mark.parametrize("parts", range(1, 40))
def test_an_alpha_of_one_over_g_stays_what_it_is(parts):
    params = RoundParameters.create(clients=120, dim=500, alpha=1 / parts, max_weight=9)
    assert params.selection_probability == 1 / parts
