"""k-regular graphs: bounds against sampled rings, and the conditions that make a threshold safe."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.sampling import assert_not_exceeded
from sparsesecagg.patterns.graphs import share_graph
from sparsesecagg.privacy import graph_tails, tails


def components(nodes: list[int], edges: set[tuple[int, int]]) -> int:
    """Count connected components by flooding."""
    left, count = set(nodes), 0
    while left:
        count += 1
        frontier = [left.pop()]
        while frontier:
            here = frontier.pop()
            reached = {there for there in left if (here, there) in edges}
            left -= reached
            frontier += reached
    return count


@pytest.mark.parametrize(
    ("nodes", "degree", "dropout", "colluders"), [(24, 4, 0.2, 3), (20, 6, 0.35, 4), (15, 2, 0.05, 0)]
)
def test_disconnection_bound_is_never_below_the_sampled_frequency(nodes, degree, dropout, colluders):
    """On the share graph that rounds really use, from fresh seeds."""
    rng = np.random.default_rng(nodes)
    draws = 1_500
    broken = 0
    for _ in range(draws):
        graph = share_graph(rng.bytes(32), np.arange(nodes), degree)
        edges = {(user, int(peer)) for user in range(nodes) for peer in graph.neighbours(user)}
        good = [user for user in range(colluders, nodes) if rng.random() >= dropout]
        broken += components(good, edges) > 1
    bound = math.exp(graph_tails.log_disconnected(nodes, degree, dropout, colluders))
    assert_not_exceeded(bound, broken, draws)
    assert broken > 0


def test_a_committees_ring_counts_colluders_of_the_whole_cohort():
    inside = graph_tails.log_disconnected(30, 8, 0.1, 100, population=1000)
    assert inside < graph_tails.log_disconnected(30, 8, 0.1, 15)  # Half of the committee would be worse.
    assert inside > graph_tails.log_disconnected(30, 8, 0.1, 0)


def test_complete_graphs_never_fall_apart_and_edgeless_ones_always_may():
    assert graph_tails.log_disconnected(10, 9, 0.4, 4) == -math.inf
    assert graph_tails.log_disconnected(10, 0, 0.4, 4) == 0.0
    assert graph_tails.log_disconnected(10, 4, 0.0, 0) == -math.inf


@given(st.integers(4, 60), st.data())
def test_disconnection_becomes_rarer_with_degree(nodes, data):
    colluders = data.draw(st.integers(0, nodes // 2))
    dropout = data.draw(st.floats(0.0, 0.3))
    bounds = [graph_tails.log_disconnected(nodes, degree, dropout, colluders) for degree in range(2, nodes, 2)]
    assert all(more <= less + 1e-9 for less, more in pairwise(bounds))


def test_exposure_bound_is_never_below_the_sampled_frequency():
    """Colluders among the ring neighbours of any honest user, on the share graph that rounds really use."""
    rng = np.random.default_rng(11)
    clients, colluders, degree, threshold, draws = 40, 8, 8, 5, 1_500
    exposed = 0
    for _ in range(draws):
        graph = share_graph(rng.bytes(32), np.arange(clients), degree)
        held = [np.count_nonzero(graph.neighbours(user) < colluders) for user in range(colluders, clients)]
        exposed += max(held) >= threshold
    bound = math.exp(graph_tails.log_shares_exposed(clients, colluders, degree, threshold))
    assert_not_exceeded(bound, exposed, draws)
    assert bound < 10 * exposed / draws


@pytest.mark.parametrize(("clients", "colluders"), [(10, 3), (11, 3), (100, 33)])
def test_in_a_complete_graph_thresholds_are_safe_exactly_from_the_known_conditions_on(clients, colluders):
    """More than A shares against colluders; more than (N + A)/2 against a lying server (Bonawitz 2017)."""
    degree = clients - 1
    for threshold in range(1, clients + 1):
        exposed = graph_tails.log_shares_exposed(clients, colluders, degree, threshold)
        split = graph_tails.log_shares_split(clients, colluders, degree, threshold)
        assert exposed == (-math.inf if threshold > colluders else 0.0)
        assert split == (-math.inf if 2 * threshold > clients + colluders else 0.0)


def test_missing_holders_are_binomial():
    assert graph_tails.log_holders_missing(10, 0.3, 6) == tails.log_binomial_below(10, 0.7, 6)
    assert graph_tails.log_too_few_survivors(10, 0.0, 10) == -math.inf
