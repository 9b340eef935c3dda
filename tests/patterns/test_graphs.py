"""Public randomness: permutations that favour nobody, graphs that are regular, symmetric and connected."""

from __future__ import annotations

from itertools import combinations
from itertools import permutations as all_orders
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import statistics
from reference.kdf import hkdf
from reference.stream import integers, key_stream
from sparsesecagg.patterns.graphs import CircleGraph, Users, permutation
from strategies import seeds

SEED = bytes(range(32))
user_sets = st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=40, unique=True).map(sorted).map(np.array)
degrees = st.integers(1, 12).map(lambda half: 2 * half)


def edges(graph: CircleGraph, users: Users) -> set[tuple[int, int]]:
    return {(int(user), int(peer)) for user in users for peer in graph.neighbours(int(user))}


def connected(users: Users, pairs: set[tuple[int, int]]) -> bool:
    reached, border = {int(users[0])}, [int(users[0])]
    while border:
        user = border.pop()
        new = {peer for other, peer in pairs if other == user} - reached
        reached |= new
        border += new
    return reached == set(users.tolist())


# Permutations


@given(seeds, user_sets)
def test_a_permutation_sorts_the_users_by_their_draws(seed: bytes, users: Users) -> None:
    """The description in plain integers: 64-bit draws of a stream under a labelled key; ties keep the order."""
    key = hkdf(seed, b"", b"sparsesecagg/v2/" + b"groups" + b"/", 32)
    draws = list(integers(key_stream(key, 8 * len(users)), 8))
    ranked = sorted(zip(draws, users.tolist(), strict=True), key=itemgetter(0))
    assert permutation(seed, "groups", users).tolist() == [user for _, user in ranked]


def test_known_answers() -> None:
    """The same on every machine, for ever."""
    assert permutation(SEED, "groups", np.arange(10)).tolist() == [5, 6, 8, 4, 1, 7, 3, 0, 9, 2]


def test_every_order_is_equally_likely() -> None:
    """All 24 orders of four users; error rate 1e-6."""
    number = {order: place for place, order in enumerate(all_orders(range(4)))}
    found = [permutation(draw.to_bytes(32, "little"), "groups", np.arange(4)) for draw in range(6000)]
    statistics.assert_uniform(np.array([number[tuple(order.tolist())] for order in found]), 24)


def test_labels_and_seeds_give_orders_of_their_own() -> None:
    users = np.arange(50)
    orders = [permutation(seed, label, users).tolist() for seed in (SEED, SEED[::-1]) for label in ("groups", "others")]
    assert len({tuple(order) for order in orders}) == 4


# Graphs


@given(user_sets, degrees)
def test_a_circle_graph_is_regular_symmetric_and_connected(users: Users, degree: int) -> None:
    """Nobody is its own neighbour; everybody has `degree` of them, or all others if there are no more."""
    circle = np.random.default_rng(len(users)).permutation(users)
    graph = CircleGraph(circle, degree)
    pairs = edges(graph, users)
    assert all(len(graph.neighbours(int(user))) == min(degree, len(users) - 1) for user in users)
    assert all(user != peer for user, peer in pairs)
    assert pairs == {(peer, user) for user, peer in pairs}
    assert connected(users, pairs)


@given(user_sets, degrees)
def test_neighbours_are_the_nearest_on_the_circle(users: Users, degree: int) -> None:
    circle = np.random.default_rng(len(users)).permutation(users)
    graph = CircleGraph(circle, degree)
    for place, user in enumerate(circle):
        around = {int(circle[(place + step) % len(circle)]) for step in range(-degree // 2, degree // 2 + 1)}
        if degree >= len(users) - 1:
            around = set(users.tolist())
        assert graph.neighbours(int(user)).tolist() == sorted(around - {int(user)})


@given(user_sets, st.integers(0, 5))
def test_the_graph_is_complete_without_a_degree_or_with_a_large_one(users: Users, beyond: int) -> None:
    for degree in (None, len(users) - 1 + beyond):
        graph = CircleGraph(users[::-1], degree)
        for user in users.tolist():
            assert graph.neighbours(user).tolist() == [peer for peer in users.tolist() if peer != user]


@pytest.mark.parametrize("degree", [2, 4, 6])
def test_fewer_dropouts_than_the_degree_can_not_cut_the_graph(degree: int) -> None:
    """What Harary graphs are for: whichever degree − 1 users leave, the others stay connected."""
    users = np.arange(11)
    pairs = edges(CircleGraph(permutation(SEED, "circle", users), degree), users)
    for gone in map(set, combinations(users.tolist(), degree - 1)):
        left = {(user, peer) for user, peer in pairs if not {user, peer} & gone}
        assert connected(np.array(sorted(set(users.tolist()) - gone)), left)


def test_every_pair_is_equally_likely_to_be_joined() -> None:
    """Over 4,000 public seeds, ten users of degree four; error rate 1e-6."""
    users, degree, rounds = np.arange(10), 4, 4000
    joined = np.zeros((10, 10), np.int64)
    for number in range(rounds):
        graph = CircleGraph(permutation(number.to_bytes(32, "little"), "circle", users), degree)
        for user in users.tolist():
            joined[user, graph.neighbours(user)] += 1
    counts = joined[np.triu_indices(10, 1)]
    assert counts.sum() == rounds * 10 * degree // 2
    statistics.assert_follows(counts, np.full(45, 1 / 45))
