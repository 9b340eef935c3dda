"""Groups: one public draw puts everybody into one pod and one committee, and favours nobody."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import statistics
from reference.kdf import hkdf
from reference.stream import integers, key_stream
from sparsesecagg.patterns import SMALLEST_COMMITTEE, Groups, draw_groups, group_sizes
from strategies import seeds

SEED = bytes(range(32))
Sizes = tuple[tuple[int, ...], ...]


@st.composite
def structures(draw: st.DrawFn) -> tuple[int, frozenset[int], Sizes]:
    """A cohort, who is excluded, and the sizes of its groups."""
    clients = draw(st.integers(3, 80))
    excluded = frozenset(draw(st.sets(st.integers(0, clients - 1), max_size=clients // 5)))
    committees = draw(st.integers(1, max(1, (clients - len(excluded)) // 3)))
    pods = draw(st.integers(1, committees))
    return clients, excluded, tuple(map(tuple, group_sizes(clients - len(excluded), committees, pods)))


def committees_of(groups: Groups) -> list[list[int]]:
    return [pod.users[places].tolist() for pod in groups.pods for places in pod.committees]


@given(seeds, structures())
def test_everybody_is_in_one_pod_and_one_committee(seed: bytes, structure: tuple[int, frozenset[int], Sizes]) -> None:
    """And who is excluded is in none."""
    clients, excluded, sizes = structure
    groups = draw_groups(seed, clients, excluded, sizes)
    members = sorted(user for committee in committees_of(groups) for user in committee)
    assert members == sorted(set(range(clients)) - excluded)
    assert [[len(places) for places in pod.committees] for pod in groups.pods] == [list(pod) for pod in sizes]
    for user in range(clients):
        pod = groups.pod_of(user)
        assert (pod is None) == (user in excluded)
        if pod is not None:
            assert pod.users[pod.place[user]] == user
            assert pod.place[user] in pod.committees[pod.committee_of[pod.place[user]]]


@given(seeds, structures())
def test_groups_are_cut_from_one_permutation(seed: bytes, structure: tuple[int, frozenset[int], Sizes]) -> None:
    """The description in plain integers: users sorted by 64-bit draws, then cut one committee after the other."""
    clients, excluded, sizes = structure
    users = [user for user in range(clients) if user not in excluded]
    key = hkdf(seed, b"", b"sparsesecagg/v2/groups/", 32)
    draws = integers(key_stream(key, 8 * len(users)), 8)
    order = [user for _, user in sorted(zip(draws, users, strict=True), key=lambda pair: pair[0])]
    expected, start = [], 0
    for size in [size for pod in sizes for size in pod]:
        expected.append(sorted(order[start : start + size]))
        start += size
    assert committees_of(draw_groups(seed, clients, excluded, sizes)) == expected


@given(seeds, structures())
def test_pods_number_their_committees_in_order(seed: bytes, structure: tuple[int, frozenset[int], Sizes]) -> None:
    clients, excluded, sizes = structure
    groups = draw_groups(seed, clients, excluded, sizes)
    first = 0
    for index, pod in enumerate(groups.pods):
        assert (pod.index, pod.first, len(pod)) == (index, first, sum(sizes[index]))
        assert pod.users.tolist() == sorted(pod.users.tolist())
        first += len(pod.committees)


def test_known_answer() -> None:
    """The same on every machine, for ever."""
    groups = draw_groups(SEED, 12, frozenset(), ((3, 3), (3, 3)))
    assert committees_of(groups) == [[5, 6, 8], [1, 4, 10], [0, 3, 7], [2, 9, 11]]


def test_a_pod_is_a_complete_graph_unless_told_otherwise() -> None:
    (pod,) = draw_groups(SEED, 9, frozenset(), ((9,),)).pods
    for place in range(9):
        assert pod.graph.neighbours(place).tolist() == [other for other in range(9) if other != place]
    (sparse,) = draw_groups(SEED, 9, frozenset(), ((9,),), 4).pods
    joined = [set(sparse.graph.neighbours(place).tolist()) for place in range(9)]
    assert all(len(others) == 4 for others in joined)
    assert all(place in joined[other] for place in range(9) for other in joined[place])


def test_every_pair_is_equally_likely_to_meet() -> None:
    """Over 3,000 public seeds, nine users in committees of three; error rate 1e-6."""
    met = np.zeros((9, 9), np.int64)
    for number in range(3000):
        for committee in committees_of(draw_groups(number.to_bytes(32, "little"), 9, frozenset(), ((3, 3, 3),))):
            met[np.ix_(committee, committee)] += 1
    counts = met[np.triu_indices(9, 1)]
    assert counts.sum() == 3000 * 9
    statistics.assert_follows(counts, np.full(36, 1 / 36))


def test_other_seeds_other_groups() -> None:
    drawn = {str(committees_of(draw_groups(bytes([seed]) * 32, 30, frozenset(), ((15, 15),)))) for seed in range(20)}
    assert len(drawn) == 20


def test_the_smallest_committee_hides_a_value_among_three() -> None:
    assert SMALLEST_COMMITTEE == 3


def test_an_excluded_user_does_not_shift_anybody_elses_draw() -> None:
    """Draws are made for those that are left, in the order of their numbers."""
    left = draw_groups(SEED, 6, frozenset({2}), ((5,),))
    assert left.pods[0].users.tolist() == [0, 1, 3, 4, 5]
    with pytest.raises(IndexError):
        left.pod_of(6)
