"""Statistical tests with a stated error rate, for samples from fixed seeds: what passes goes on passing."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

ERROR_RATE = 1e-6
"""How often right code would fail one of these tests if the seed were drawn anew."""

Z_LIMIT = -NormalDist().inv_cdf(ERROR_RATE / 2)
"""Standard deviations that a normal variable exceeds, on either side, with probability ERROR_RATE."""


def chi_square_limit(degrees: int) -> float:
    """Return what chi-square exceeds with probability ERROR_RATE (Wilson and Hilferty's approximation)."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread - NormalDist().inv_cdf(ERROR_RATE) * sqrt(spread)) ** 3


def assert_follows(counts: NDArray[Any], probabilities: Sequence[float] | NDArray[Any]) -> None:
    """Assert that cell counts come from the given probabilities, which add up to one."""
    counts, expected = np.asarray(counts), np.asarray(probabilities) * np.sum(counts)
    assert abs(expected.sum() - counts.sum()) < 1e-6 * counts.sum(), "the probabilities do not add up to one"
    assert expected.min() >= 5, "a cell is too thin for the chi-square test"
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < chi_square_limit(len(counts) - 1), (statistic, chi_square_limit(len(counts) - 1))


def assert_uniform(values: NDArray[Any], cells: int) -> None:
    """Assert that integers in [0, cells) are equally likely."""
    assert_follows(np.bincount(values.astype(np.int64), minlength=cells), np.full(cells, 1 / cells))


def assert_same_law(first: NDArray[Any], second: NDArray[Any]) -> None:
    """Assert that two histograms over the same cells come from one distribution."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    kept = first + second >= 10
    first, second = (np.append(cells[kept], cells[~kept].sum()) for cells in (first, second))
    if first[-1] + second[-1] < 10:
        first, second = first[:-1], second[:-1]
    ratio = sqrt(second.sum() / first.sum())
    statistic = float(((first * ratio - second / ratio) ** 2 / (first + second)).sum())
    assert statistic < chi_square_limit(len(first) - 1), (statistic, chi_square_limit(len(first) - 1))


def assert_mean(total: float, expected: float, deviation: float) -> None:
    """Assert that a sum of many terms lies where its expectation and standard deviation say."""
    assert abs(total - expected) < Z_LIMIT * deviation, (total, expected, deviation)
