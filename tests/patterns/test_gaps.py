"""The gap sampler: bit for bit its plain twin, in law the literal Bernoulli sampler, at the cost of its ones."""

from __future__ import annotations

from bisect import bisect_left
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference import gaps as twin
from reference import statistics
from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.patterns import gaps
from sparsesecagg.patterns.gaps import ONE, GapTable, bernoulli_positions, table_size
from strategies import seeds

PAPER = (2**32 // 10 << 32) // 99
"""α/(N−1) for α = 0.1 and N = 100, the paper's setting."""

PROBABILITIES = [ONE // 2, ONE // 3, ONE // 20, PAPER, ONE // 40_000, ONE - 1, 2**32, 1]
SEED = bytes(range(32))


def numbered(count: int, start: int = 0) -> list[PatternSeed]:
    return [PatternSeed(number.to_bytes(32, "little")) for number in range(start, start + count)]


def lists(found: list[NDArray[np.int64]]) -> list[list[int]]:
    return [positions.tolist() for positions in found]


# Bit for bit


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_the_table_is_that_of_plain_integers(probability: int) -> None:
    table = GapTable.of(probability)
    assert table.cumulative.tolist() == twin.cumulative(probability)
    assert len(table.cumulative) == table_size(probability)


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_a_draw_gives_the_gap_that_bisection_finds(probability: int) -> None:
    """Also at each end of each cell, where the guide must not answer for a neighbour."""
    table = twin.cumulative(probability)
    edges = {0, 1, ONE - 1, *(entry + step for entry in table[:300] for step in (-1, 0, 1))}
    edges |= {(bucket << 48) + step for bucket in range(0, 2**16, 257) for step in (-1, 0, 1)}
    draws = sorted(draw for draw in edges if 0 <= draw < ONE)
    steps, skips = GapTable.of(probability).walk(np.array(draws, np.uint64))
    gaps = [bisect_left(table, draw) for draw in draws]
    assert steps.tolist() == [min(gap + 1, len(table)) for gap in gaps]
    assert skips.tolist() == [place for place, gap in enumerate(gaps) if gap == len(table)]


@given(seeds, st.integers(1, 3000), st.sampled_from(PROBABILITIES) | st.integers(ONE // 1000, ONE - 1))
def test_positions_are_those_of_the_plain_walk(seed: bytes, dim: int, probability: int) -> None:
    (found,) = bernoulli_positions([PatternSeed(seed)], dim, probability)
    assert found.tolist() == twin.positions(seed, dim, probability)


@pytest.mark.parametrize(("dim", "probability"), [(165_000, PAPER), (5_000_000, ONE // 10**6), (20_000, ONE // 2)])
def test_positions_are_those_of_the_plain_walk_in_large(dim: int, probability: int) -> None:
    """With many ones, and with gaps far longer than the table."""
    (found,) = bernoulli_positions([PatternSeed(SEED)], dim, probability)
    assert found.tolist() == twin.positions(SEED, dim, probability)
    assert found.dtype == np.int32


def test_known_answers() -> None:
    """The same on every machine, for ever."""
    (found,) = bernoulli_positions([PatternSeed(SEED)], 100, ONE // 10)
    assert found.tolist() == [16, 23, 45, 48, 61, 70, 72, 76, 77, 81, 91]
    (found,) = bernoulli_positions([PatternSeed(SEED)], 10_000, PAPER)
    assert found.tolist() == [1669, 2359, 4608, 4879, 6214, 7121, 7324, 7732, 7759, 8121, 9148]


@pytest.mark.parametrize("batch", [1, 100, 1000, 10**9])
def test_how_seeds_are_batched_does_not_matter(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two sides of a pair have different numbers of peers."""
    dim, probability = 20_000, ONE // 300
    alone = [bernoulli_positions([seed], dim, probability)[0].tolist() for seed in numbered(12)]
    monkeypatch.setattr(gaps, "_BATCH_DRAWS", batch)
    assert lists(bernoulli_positions(numbered(12), dim, probability)) == alone
    assert lists(bernoulli_positions(numbered(12)[::-1], dim, probability)) == alone[::-1]


@pytest.mark.parametrize("reads", [1, 2, 7, 64, 5000])
@pytest.mark.parametrize("probability", [ONE // 40, ONE // 40_000])
def test_how_many_draws_are_read_at_a_time_does_not_matter(reads: int, probability: int) -> None:
    """The first guess may be short or long."""
    dim = 8000
    found = gaps._walk([KeyStream(seed) for seed in numbered(6)], reads, dim, probability)
    assert lists(found) == [twin.positions(seed.reveal(), dim, probability) for seed in numbered(6)]


def test_no_seeds_give_no_patterns() -> None:
    assert bernoulli_positions([], 1000, PAPER) == []


@given(seeds, st.integers(1, 2000), st.integers(1, 2000))
@settings(max_examples=30)
def test_a_longer_model_only_adds_positions(seed: bytes, dim: int, more: int) -> None:
    """The walk does not know where it will end."""
    (short,) = bernoulli_positions([PatternSeed(seed)], dim, ONE // 20)
    (long,) = bernoulli_positions([PatternSeed(seed)], dim + more, ONE // 20)
    assert long[long < dim].tolist() == short.tolist()


# In law: chi-square tests, error rate 1e-6 each


@pytest.fixture(scope="module")
def paper_patterns() -> list[NDArray[np.int64]]:
    """400 pairs of the paper's setting, some 66,000 ones."""
    return bernoulli_positions(numbered(400), 165_000, PAPER)


@pytest.fixture(scope="module")
def literal_patterns() -> list[NDArray[np.int64]]:
    """As many from the sampler that the paper writes down."""
    rng = np.random.default_rng(7)
    return [twin.literal(rng, 165_000, PAPER) for _ in range(400)]


def gap_cells(patterns: list[NDArray[np.int64]], cells: int = 60, width: int = 64) -> NDArray[np.int64]:
    """Histogram of the gaps between ones; the last cell takes all that is longer."""
    found = np.concatenate([np.diff(positions) - 1 for positions in patterns])
    return np.bincount(np.minimum(found // width, cells - 1), minlength=cells)


def test_gaps_have_the_law_of_the_literal_sampler(
    paper_patterns: list[NDArray[np.int64]], literal_patterns: list[NDArray[np.int64]]
) -> None:
    statistics.assert_same_law(gap_cells(paper_patterns), gap_cells(literal_patterns))


def test_counts_have_the_law_of_the_literal_sampler(
    paper_patterns: list[NDArray[np.int64]], literal_patterns: list[NDArray[np.int64]]
) -> None:
    first, second = (
        np.bincount([len(positions) // 4 for positions in patterns], minlength=100)
        for patterns in (paper_patterns, literal_patterns)
    )
    statistics.assert_same_law(first, second)


def test_positions_are_spread_evenly(paper_patterns: list[NDArray[np.int64]]) -> None:
    statistics.assert_uniform(np.concatenate(paper_patterns) // 1650, 100)


def test_successive_gaps_are_independent(paper_patterns: list[NDArray[np.int64]]) -> None:
    """Jointly: the share of pairs of gaps in each cell is the product of the single shares."""
    edges = (np.log(1 / np.arange(0.875, 0.1, -0.125)) * ONE / PAPER).astype(np.int64)  # Equally likely cells.
    cells = [np.searchsorted(edges, np.diff(positions)) for positions in paper_patterns]
    joint = np.concatenate([8 * cell[:-1] + cell[1:] for cell in cells])
    single = np.bincount(np.concatenate(cells), minlength=8) / sum(map(len, cells))
    statistics.assert_follows(np.bincount(joint, minlength=64), np.outer(single, single).reshape(-1))


@pytest.mark.parametrize(("numerator", "denominator"), [(1, 2), (1, 3), (1, 20), (19, 20)])
def test_short_gaps_are_geometric(numerator: int, denominator: int) -> None:
    """P[gap = k] = π(1 − π)^k, up to the last cell that is thick enough."""
    probability = ONE * numerator // denominator
    (found,) = bernoulli_positions([PatternSeed(SEED)], 200_000 * denominator // numerator, probability)
    pi, first = numerator / denominator, np.diff(found, prepend=-1) - 1
    cells = int(np.searchsorted(-((1 - pi) ** np.arange(400)), -1e-3))
    law = pi * (1 - pi) ** np.arange(cells)
    counts = np.bincount(np.minimum(first, cells), minlength=cells + 1)
    statistics.assert_follows(counts, np.append(law, (1 - pi) ** cells))


def test_every_small_pattern_is_as_likely_as_independent_bits() -> None:
    """All 32 patterns of five coordinates at π = 1/3, over 40,000 pairs."""
    found = bernoulli_positions(numbered(40_000), 5, ONE // 3)
    codes = np.array([int((1 << positions).sum()) for positions in found])
    law = [(1 / 3) ** code.bit_count() * (2 / 3) ** (5 - code.bit_count()) for code in range(32)]
    statistics.assert_follows(np.bincount(codes, minlength=32), law)


def test_gaps_longer_than_the_table_keep_the_law() -> None:
    """With π = 2^−18 the table ends at a quarter of the mean gap, so most draws are skips."""
    dim, pairs = 2**19, 3000
    found = bernoulli_positions(numbered(pairs), dim, ONE >> 18)
    law = [comb(dim, ones) * 2.0 ** (-18 * ones) * (1 - 2.0**-18) ** (dim - ones) for ones in range(6)]
    counts = np.bincount([min(6, len(positions)) for positions in found], minlength=7)
    statistics.assert_follows(counts, [*law, 1 - sum(law)])
    statistics.assert_uniform(np.concatenate(found) >> 14, 32)


# Cost


class CountingStream(KeyStream):
    """A key stream that counts the bytes read from all of its kind."""

    bytes_read = 0

    def fill(self, room: memoryview, size: int) -> None:
        CountingStream.bytes_read += size
        super().fill(room, size)


def bytes_and_ones(dim: int, probability: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    CountingStream.bytes_read = 0
    monkeypatch.setattr(gaps, "KeyStream", CountingStream)
    found = bernoulli_positions(numbered(50), dim, probability)
    return CountingStream.bytes_read, sum(map(len, found))


@pytest.mark.parametrize("dim", [165_000, 1_663_370])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0])
def test_the_cost_is_proportional_to_the_ones(dim: int, alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight bytes of key stream per one, a third more for skips and the guess, a few to begin with."""
    probability = (round(alpha * 2**32) << 32) // 99
    cost, ones = bytes_and_ones(dim, probability, monkeypatch)
    assert 8 * ones <= cost <= 8 * (ones * 4 / 3 + 50 * 24)


def test_the_cost_does_not_follow_the_dimension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the coordinates with a tenth of the probability cost the same."""
    small, _ = bytes_and_ones(165_000, PAPER, monkeypatch)
    large, _ = bytes_and_ones(1_650_000, PAPER // 10, monkeypatch)
    assert abs(large - small) <= 0.1 * small


def test_a_tiny_probability_over_a_huge_model_is_walked_in_few_steps() -> None:
    """Nearly every draw is a skip then; a quarter of a one is expected, so more than ten have no chance."""
    (positions,) = bernoulli_positions([PatternSeed(bytes(32))], 1 << 30, 1 << 32)
    assert len(positions) <= 10
