"""`pairwise`: the published pattern, coordinate by coordinate."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from reference import gaps as twin
from reference import statistics
from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns.pairwise import draw_positions, edge_probability, selection_probability


def seed_of(number: int) -> PatternSeed:
    return PatternSeed(number.to_bytes(32, "little"))


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("degree", [2, 19, 99, 10])
def test_the_fraction_sent_is_the_papers_p(alpha: float, degree: int) -> None:
    """p = 1 − (1 − α/(N−1))^(N−1), or with the degree for N − 1; error rate 1e-6."""
    dim = 40_000
    p = 1 - (1 - alpha / degree) ** degree
    assert selection_probability(alpha, degree) == pytest.approx(p, abs=1e-12)
    drawn = draw_positions(
        [seed_of(peer) for peer in range(degree)], dim, edge_probability(round(alpha * 2**32), degree)
    )
    sent = len(np.unique(np.concatenate(drawn)))
    statistics.assert_mean(sent, dim * p, sqrt(dim * p * (1 - p)))


@pytest.mark.parametrize("probability", [1 << 50, 1 << 60, 1 << 63, (1 << 64) - 1])
def test_positions_are_those_of_the_plain_twin(probability: int) -> None:
    seeds = [seed_of(number) for number in range(3)]
    found = draw_positions(seeds, 300, probability)
    assert [each.tolist() for each in found] == [twin.positions(seed.reveal(), 300, probability) for seed in seeds]


def test_a_pair_meets_at_a_coordinate_with_probability_alpha_over_peers() -> None:
    """In units of 2^−64, rounded down."""
    alpha = round(0.1 * 2**32)
    assert edge_probability(alpha, 99) == (alpha * 2**32) // 99
    assert edge_probability(1 << 32, 1) == 1 << 64
    assert edge_probability(1, 3) == (1 << 32) // 3
