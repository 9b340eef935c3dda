"""Groups: one public draw puts everybody into one group and favours nobody; graphs are regular and connected."""

from __future__ import annotations

from itertools import combinations, permutations
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import statistics
from reference.kdf import hkdf
from reference.stream import integers, key_stream
from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.groups import (
    SMALLEST_GROUP,
    CircleGraph,
    Groups,
    Users,
    draw_groups,
    group_count,
    group_sizes,
)
from strategies import seeds

SEED = bytes(range(32))
user_sets = st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=40, unique=True).map(sorted).map(np.array)
degrees = st.integers(1, 12).map(lambda half: 2 * half)
cohorts = st.integers(3, 80).flatmap(lambda clients: st.tuples(st.just(clients), st.integers(1, clients // 3)))


def users_of(groups: Groups) -> list[list[int]]:
    return [group.users.tolist() for group in groups.groups]


# How many, how large


@pytest.mark.parametrize(("clients", "count"), [(3, 1), (128, 1), (129, 2), (200, 2), (201, 3), (1000, 10)])
def test_up_to_128_users_are_one_group_and_larger_ones_have_at_most_100(clients: int, count: int) -> None:
    assert group_count(clients, None) == count


@given(st.integers(3, 5000), st.data())
def test_no_group_is_larger_than_asked_and_they_differ_by_one(clients: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(6, clients) if clients > 6 else st.just(clients))
    count = group_count(clients, size)
    sizes = group_sizes(clients, count)
    assert (sum(sizes), len(sizes)) == (clients, count)
    assert size >= max(sizes) >= min(sizes) >= max(SMALLEST_GROUP, max(sizes) - 1)
    assert count == 1 or -(-clients // (count - 1)) > size, "no more groups than that takes"


@pytest.mark.parametrize(
    ("clients", "size", "problem"),
    [
        (10, 2, "must be from 3 to the 10 clients, got 2"),
        (10, 11, "must be from 3 to the 10 clients, got 11"),
        (10, 3, "of 3 leaves groups of 2 among 10 clients"),
        (5, 4, "of 4 leaves groups of 2 among 5 clients"),
    ],
)
def test_sizes_that_can_not_be_are_refused(clients: int, size: int, problem: str) -> None:
    """A group of two would tell each of them the other's update."""
    with pytest.raises(InvalidInput, match=problem) as caught:
        group_count(clients, size)
    assert caught.value.option == "group_size"


# The draw


@given(seeds, cohorts)
def test_everybody_is_in_one_group(seed: bytes, cohort: tuple[int, int]) -> None:
    clients, count = cohort
    groups = draw_groups(seed, clients, count)
    assert sorted(user for users in users_of(groups) for user in users) == list(range(clients))
    assert tuple(map(len, groups.groups)) == group_sizes(clients, count)
    for number, group in enumerate(groups.groups):
        assert group.number == number
        assert group.users.tolist() == sorted(group.users.tolist())
        for index, user in enumerate(group.users.tolist()):
            assert groups.of(user) is group
            assert group.index_of[user] == index


@given(seeds, cohorts)
def test_groups_are_cut_from_one_permutation(seed: bytes, cohort: tuple[int, int]) -> None:
    """The description in plain integers: users sorted by 64-bit draws, cut at ⌊i·N/K⌋."""
    clients, count = cohort
    draws = integers(key_stream(hkdf(seed, b"", b"sparsesecagg/v3/groups/", 32), 8 * clients), 8)
    order = [user for _, user in sorted(zip(draws, range(clients), strict=True), key=itemgetter(0))]
    cuts = [i * clients // count for i in range(count + 1)]
    expected = [sorted(order[cuts[i] : cuts[i + 1]]) for i in range(count)]
    assert users_of(draw_groups(seed, clients, count)) == expected


def test_known_answer() -> None:
    """The same on every machine, for ever."""
    assert users_of(draw_groups(SEED, 12, 4)) == [[2, 6, 7], [1, 4, 11], [0, 8, 10], [3, 5, 9]]


def test_every_pair_is_equally_likely_to_meet() -> None:
    """Over 3,000 public seeds, nine users in groups of three; error rate 1e-6."""
    met = np.zeros((9, 9), np.int64)
    for number in range(3000):
        for users in users_of(draw_groups(number.to_bytes(32, "little"), 9, 3)):
            met[np.ix_(users, users)] += 1
    counts = met[np.triu_indices(9, 1)]
    assert counts.sum() == 3000 * 9
    statistics.assert_follows(counts, np.full(36, 1 / 36))


def test_every_order_on_the_circle_is_equally_likely() -> None:
    """All 24 orders of four users; error rate 1e-6."""
    number = {order: place for place, order in enumerate(permutations(range(4)))}
    found = [draw_groups(draw.to_bytes(32, "little"), 4, 1).groups[0].graph._circle for draw in range(6000)]
    statistics.assert_uniform(np.array([number[tuple(order.tolist())] for order in found]), 24)


def test_other_seeds_other_groups() -> None:
    assert len({str(users_of(draw_groups(bytes([seed]) * 32, 30, 2))) for seed in range(20)}) == 20


def test_a_group_is_a_complete_graph_unless_told_otherwise() -> None:
    (group,) = draw_groups(SEED, 9, 1).groups
    for index in range(9):
        assert group.graph.neighbours(index).tolist() == [other for other in range(9) if other != index]
    (sparse,) = draw_groups(SEED, 9, 1, 4).groups
    assert all(len(sparse.graph.neighbours(index)) == 4 for index in range(9))


# Graphs


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


@given(user_sets, degrees)
def test_a_circle_graph_joins_the_nearest_on_the_circle(users: Users, degree: int) -> None:
    """Regular, symmetric and connected; nobody is its own neighbour, and all others are if there are no more."""
    circle = np.random.default_rng(len(users)).permutation(users)
    graph = CircleGraph(circle, degree)
    for place, user in enumerate(circle):
        around = {int(circle[(place + step) % len(circle)]) for step in range(-degree // 2, degree // 2 + 1)}
        if degree >= len(users) - 1:
            around = set(users.tolist())
        assert graph.neighbours(int(user)).tolist() == sorted(around - {int(user)})
        assert len(graph.neighbours(int(user))) == min(degree, len(users) - 1)
    pairs = edges(graph, users)
    assert pairs == {(peer, user) for user, peer in pairs}
    assert connected(users, pairs)


@pytest.mark.parametrize("degree", [2, 4, 6])
def test_fewer_dropouts_than_the_degree_can_not_cut_the_graph(degree: int) -> None:
    """What Harary graphs are for: whichever degree − 1 users leave, the others stay connected."""
    users = np.arange(11)
    pairs = edges(draw_groups(SEED, 11, 1, degree).groups[0].graph, users)
    for gone in map(set, combinations(users.tolist(), degree - 1)):
        left = {(user, peer) for user, peer in pairs if not {user, peer} & gone}
        assert connected(np.array(sorted(set(users.tolist()) - gone)), left)
