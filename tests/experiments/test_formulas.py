"""The paper's theorems, against plain enumeration and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.theory import formulas
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.audit.theory import selection_probability
from sparsesecagg.patterns.groups import group_sizes

cohorts = st.integers(4, 300)
alphas = st.floats(0.01, 1.0)


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
    assert formulas.pairwise_moments(alpha, clients, dropout=0.0).joint == pytest.approx(both)
    assert formulas.pairwise_moments(alpha, clients, dropout=0.3).joint == pytest.approx(0.49 * both)


@given(cohorts, alphas, st.integers(1, 10**6), st.floats(1e-4, 0.5))
def test_the_kl_form_of_theorem_1_is_never_looser_than_hoeffdings(
    clients: int, alpha: float, dim: int, epsilon: float
) -> None:
    kl = formulas.oversize_probability(alpha, clients, dim, epsilon)
    assert kl <= formulas.oversize_probability(alpha, clients, dim, epsilon, "hoeffding") * (1 + 1e-9)


def test_theorem_1_bounds_the_sampled_sizes() -> None:
    rng = np.random.default_rng(4)
    clients, alpha, dim, epsilon = 20, 0.3, 200, 0.05
    p = selection_probability(alpha, clients)
    frequency = float(np.mean(rng.binomial(dim, p, 20_000) > (p + epsilon) * dim))
    assert frequency <= formulas.oversize_probability(alpha, clients, dim, epsilon)
    assert frequency > 0


def test_nobody_sends_more_than_the_whole_model() -> None:
    assert formulas.oversize_probability(1.0, 2, 10, 0.1) == 0.0


@pytest.mark.parametrize(
    ("clients", "groups", "block"), [(12, 1, (1, 4)), (12, 3, (1, 3)), (13, 4, (3, 10)), (25, 5, (1, 2))]
)
def test_moments_of_slices_match_drawn_groups(clients: int, groups: int, block: tuple[int, int]) -> None:
    draws, (part, length) = 20_000, block
    rng = np.random.default_rng(1)
    order = np.repeat(np.arange(groups), group_sizes(clients, groups))
    group_of = rng.permuted(np.tile(order, (draws, 1)), axis=1)
    offset = rng.integers(length, size=draws)[:, None]
    sends = (offset - group_of * length // groups) % length < part
    moments = formulas.sliced_moments(clients, groups, block, dropout=0.0)
    # Five standard errors of a frequency: a false alarm in two million.
    tolerance = 5 / (2 * math.sqrt(draws))
    assert moments.participation == part / length
    assert sends[:, 0].mean() == pytest.approx(moments.participation, abs=tolerance)
    assert (sends[:, 0] & sends[:, 1]).mean() == pytest.approx(moments.joint, abs=tolerance)


def test_in_one_group_everybody_or_nobody_sends_a_coordinate() -> None:
    moments = formulas.sliced_moments(40, 1, (1, 10), dropout=0.3)
    assert moments.joint == pytest.approx(0.49 * 0.1)
    assert moments.correlation_excess == pytest.approx(9)


def test_theorem_2_states_a_little_less_than_finite_cohorts_have() -> None:
    assert formulas.anonymity_limit(0.1, 100, 0.3, 0.0) < formulas.anonymity(0.1, 100, 0.3, 0.0)


def test_an_epsilon_of_zero_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        formulas.oversize_probability(0.5, 10, 10, 0.0)
