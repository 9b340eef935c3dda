"""`pairwise`: the published pattern, coordinate by coordinate."""

from __future__ import annotations

from math import sqrt
from typing import ClassVar

import numpy as np
import pytest

from patterns.suite import Case, PatternSuite, pair_seed, sent_by, shared_with
from reference import gaps as twin
from reference import statistics
from sparsesecagg.patterns import Pairwise


class TestPairwise(PatternSuite):
    kind = Pairwise
    cases: ClassVar = [
        Case(clients=3, dim=200, alpha=1.0),
        Case(clients=10, dim=500, alpha=0.1),
        Case(clients=10, dim=1000, alpha=0.5, missing=(1, 8)),
        Case(clients=16, dim=500, alpha=0.3, degree=4),
        Case(clients=16, dim=500, alpha=0.3, degree=4, missing=(0, 9)),
    ]

    def test_a_user_sends_the_union_of_what_its_pairs_drew(self, case: Case) -> None:
        """U_i in the paper, from the plain twin of b_ij."""
        pattern = case.pattern(Pairwise)
        probability = (case.settings.alpha << 32) // (case.degree or case.clients - 1)
        for user in case.members[:4]:
            drawn = [
                twin.positions(pair_seed(user, peer).reveal(), case.dim, probability) for peer in pattern.peers(user)
            ]
            shared = shared_with(pattern, user, pattern.peers(user))
            assert [np.asarray(blocks).tolist() for blocks in shared.values()] == drawn
            assert sent_by(pattern, user) == sorted({place for places in drawn for place in places})

    def test_a_block_is_one_coordinate(self, case: Case) -> None:
        layout = Pairwise.make_layout(case.settings)
        assert (layout.blocks, layout.length) == (case.dim, 1)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("clients", "degree"), [(3, None), (20, None), (100, None), (100, 10)])
def test_the_fraction_sent_is_the_papers_p(alpha: float, clients: int, degree: int | None) -> None:
    """p = 1 − (1 − α/(N−1))^(N−1), or with the degree for N − 1; error rate 1e-6."""
    case = Case(clients=clients, dim=40_000, alpha=alpha, degree=degree)
    peers = degree or clients - 1
    p = 1 - (1 - alpha / peers) ** peers
    assert abs(Pairwise.selection_probability(case.settings) - p) < 1e-9
    sent = len(sent_by(case.pattern(Pairwise), 0))
    statistics.assert_mean(sent, case.dim * p, sqrt(case.dim * p * (1 - p)))


def test_a_pair_meets_at_a_coordinate_with_probability_alpha_over_peers() -> None:
    """In units of 2^−64, rounded down."""
    settings = Case(clients=100, dim=10, alpha=0.1).settings
    assert Pairwise.edge_probability(settings) == (settings.alpha * 2**32) // 99
    settings = Case(clients=100, dim=10, alpha=0.1, degree=20).settings
    assert Pairwise.edge_probability(settings) == (settings.alpha * 2**32) // 20


def test_by_chance_everybody_may_send_one_coordinate() -> None:
    assert Pairwise.contributors(Case(clients=17, dim=10, alpha=0.1).settings) == 17


def test_locations_are_secret_to_all_but_pairs() -> None:
    """So they travel with the upload."""
    assert not Pairwise.public
