"""Skellam noise: the table against mpmath, the draws against the distribution."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.mechanism import LARGEST_VARIANCE, SkellamTable

mpmath = pytest.importorskip("mpmath")


def stream(number: int = 0) -> KeyStream:
    return KeyStream(Secret(number.to_bytes(32, "little")))


def threshold(table: SkellamTable, place: int) -> int:
    return (int(table.high[place]) << 64) | int(table.low[place])


@pytest.mark.parametrize("variance", [0.01, 0.7, 3.0, 250.5, 12_345.6])
def test_thresholds_are_the_distribution_function(variance: float) -> None:
    """To 2^−110, at places across the whole table.

    mpmath gives the two outermost Bessel functions; the others follow by I(k − 1) = I(k + 1) + 2k/x·I(k), which is
    stable downwards, and is checked on the way.
    """
    table = SkellamTable.of(variance)
    with mpmath.workdps(80):
        exact, middle = mpmath.mpf(variance), -table.smallest
        bessel = [mpmath.besseli(middle + 1, exact), mpmath.besseli(middle, exact)]
        for k in range(middle, 1, -1):
            bessel.append(bessel[-2] + 2 * k / exact * bessel[-1])
        for k in {1, middle // 2 + 1}:
            assert mpmath.almosteq(bessel[middle + 1 - k], mpmath.besseli(k, exact), mpmath.mpf(10) ** -60)
        masses = [mpmath.exp(-exact) * each for each in bessel[1:]]  # Of −middle up to −1.
        below = mpmath.fsum(masses)
        assert abs(threshold(table, middle - 1) - below * 2**128) < 2**18
        with_zero = below + mpmath.exp(-exact) * mpmath.besseli(0, exact)
        assert abs(threshold(table, middle) - with_zero * 2**128) < 2**18
        quarter = middle // 4
        assert abs(threshold(table, quarter) - mpmath.fsum(masses[: quarter + 1]) * 2**128) < 2**18


@pytest.mark.parametrize("variance", [0.3, 5.0, 400.0])
def test_tables_are_symmetric_and_increase(variance: float) -> None:
    table = SkellamTable.of(variance)
    values = [threshold(table, place) for place in range(len(table.high))]
    assert values == sorted(values)
    assert all(abs(left + right - 2**128) < 4 for left, right in zip(values, reversed(values), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("variance", [0.8, 37.0])
def test_ten_million_draws_pass_a_chi_square_test(variance: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    draws = SkellamTable.of(variance).draw(stream(3), 10_000_000)
    edge = int(3.5 * variance**0.5) + 1
    inside = np.clip(draws, -edge, edge)
    counts = np.bincount(inside + edge, minlength=2 * edge + 1)
    k = np.arange(-edge, edge + 1)
    expected = stats.skellam.pmf(k, variance / 2, variance / 2)
    expected[0] = stats.skellam.cdf(-edge, variance / 2, variance / 2)
    expected[-1] = 1 - stats.skellam.cdf(edge - 1, variance / 2, variance / 2)
    assert stats.chisquare(counts, expected * len(draws)).pvalue > 1e-3


def test_a_wrong_variance_would_fail_the_same_test() -> None:
    """The control: draws of 5 per cent more variance are told apart."""
    stats = pytest.importorskip("scipy.stats")
    draws = np.clip(SkellamTable.of(37.0 * 1.05).draw(stream(4), 200_000), -20, 20)
    expected = stats.skellam.pmf(np.arange(-20, 21), 18.5, 18.5)
    expected[0], expected[-1] = (stats.skellam.cdf(-20, 18.5, 18.5), 1 - stats.skellam.cdf(19, 18.5, 18.5))
    counts = np.bincount(draws + 20, minlength=41)
    assert stats.chisquare(counts, expected * len(draws)).pvalue < 1e-6


def test_where_first_halves_meet_the_second_ones_decide() -> None:
    table = SkellamTable.of(2.0)
    place = len(table.high) // 2
    first, second = int(table.high[place]), int(table.low[place])
    assert table._settled(first, second) == place + 1
    assert table._settled(first, second - 1) == place


class Given:
    """A stream of numbers that are given, as one would meet in 10^15 draws."""

    def __init__(self, *numbers: int) -> None:
        self._bytes = np.array(numbers, "<u8").view(np.uint8)

    def read(self, size: int) -> NDArray[np.uint8]:
        found, self._bytes = self._bytes[:size], self._bytes[size:]
        assert len(found) == size
        return found


@pytest.mark.parametrize("beside", [-3, 0, 2])
def test_a_draw_that_meets_a_threshold_takes_eight_more_bytes(beside: int) -> None:
    """Before it and behind it are draws that meet none."""
    table = SkellamTable.of(4.0)
    place = len(table.high) // 2 + beside
    high, low = int(table.high[place]), int(table.low[place])
    for second, found in ((low, place + 1), (low - 1, place)):
        draws = table.draw(Given(high + 1, high, high + 1, second), 3)  # type: ignore[arg-type]
        assert (draws - table.smallest).tolist() == [place + 1, found, place + 1]


def test_the_same_stream_gives_the_same_noise_and_another_another() -> None:
    table = SkellamTable.of(100.0)
    assert np.array_equal(table.draw(stream(1), 100), table.draw(stream(1), 100))
    assert not np.array_equal(table.draw(stream(1), 100), table.draw(stream(2), 100))


@pytest.mark.parametrize("variance", [0.0, -1.0, 2 * LARGEST_VARIANCE, float("nan")])
def test_variances_without_a_table_are_refused(variance: float) -> None:
    with pytest.raises(InvalidInput):
        SkellamTable.of(variance)
