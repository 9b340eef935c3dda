"""`pairwise`: the pattern suite, and the published law of what is sent."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from patterns.suite import GroupOfUsers, PatternSuite, make_layout, updates
from reference import gaps as twin
from reference import statistics
from sparsesecagg.field import Word
from sparsesecagg.patterns import pairwise
from sparsesecagg.patterns.gaps import ONE
from sparsesecagg.patterns.masks import pattern_seeds
from sparsesecagg.patterns.pairwise import Pairwise


class TestPairwise(PatternSuite):
    kind = Pairwise
    alphas = (0.5, 0.1, 1.0)

    def malformed(self, locations: bytes, words: bytes, word: Word) -> list[tuple[bytes, bytes]]:
        found = super().malformed(locations, words, word)
        return [*found, (b"", words), (b"\x07" + locations[1:], words), (locations[:-1], words)]


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("clients", "neighbours"), [(3, 0), (20, 0), (100, 0), (30, 10)])
def test_the_fraction_sent_is_the_papers_p(alpha: float, clients: int, neighbours: int) -> None:
    """p = 1 − (1 − α/(N−1))^(N−1), or with the degree for N − 1; error rate 1e-6."""
    dim, degree = 40_000, neighbours or clients - 1
    pattern = Pairwise(make_layout(dim, alpha, clients=clients, neighbours=neighbours))
    p = 1 - (1 - alpha / degree) ** degree
    assert pattern.fraction() == pytest.approx(p)
    group = GroupOfUsers(pattern)
    group.upload(1, np.zeros(dim, np.float32))
    statistics.assert_mean(len(group.sent[1]), dim * p, sqrt(dim * p * (1 - p)))


def test_fewer_members_draw_fewer_coordinates() -> None:
    """With M of N users in the round, p has M − 1 in its exponent and still α/(N − 1) in its base."""
    pattern = Pairwise(make_layout(100, 0.5, clients=11))
    assert pattern.fraction(6) == pytest.approx(1 - (1 - 0.05) ** 5)
    assert pattern.fraction(11) == pattern.fraction()
    sparse = Pairwise(make_layout(100, 0.5, clients=11, neighbours=4))
    assert sparse.fraction(6) == sparse.fraction(), "neighbours stay, whoever else is there"


def test_a_pair_meets_at_a_coordinate_with_probability_alpha_over_peers() -> None:
    """In units of 2^−64, rounded down."""
    alpha = round(0.1 * 2**32)
    assert Pairwise(make_layout(9, 0.1, clients=100)).edge_probability == (alpha << 32) // 99
    assert Pairwise(make_layout(9, 1.0, clients=100, neighbours=10)).edge_probability == (1 << 64) // 10


def test_users_send_the_coordinates_that_their_pairs_drew() -> None:
    """Those of the plain twin, drawn from the pair's own secret."""
    group = GroupOfUsers(Pairwise(make_layout(300, 0.5, clients=6)))
    for user in group.users:
        group.upload(user, np.zeros(300, np.float32))
    probability = group.pattern.edge_probability  # type: ignore[attr-defined]
    for user in group.users:
        drawn: set[int] = set()
        for peer in group.peers(user):
            [seed] = pattern_seeds([group.pair(user, peer)], group.server.context)
            drawn |= set(twin.positions(seed.reveal(), 300, probability))
        assert group.sent[user] == sorted(drawn)


@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_masks_are_taken_away_however_many_pairs_at_a_time(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    group = GroupOfUsers(Pairwise(make_layout(300, 0.5, clients=6)))
    for user, update in enumerate(updates(6, 300)):
        if user not in (1, 4):
            group.add(user, group.upload(user, update))
    monkeypatch.setattr(pairwise, "_PIECE", pairs * (300 * group.pattern.edge_probability // ONE + 1))  # type: ignore[attr-defined]
    group.assert_exact({0, 2, 3, 5})


def test_it_is_marked_as_what_protects_nobody() -> None:
    assert not Pairwise.protects
    assert not Pairwise.several_groups
