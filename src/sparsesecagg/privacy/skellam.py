"""Skellam noise from a cryptographic stream: integers only, one table for a run.

A Skellam variable is the difference of two Poisson variables of the same mean; its variance v is their sum, and sums of
Skellam variables are Skellam again, so that users who each add variance μ/H together add any multiple of it (Agarwal,
Kairouz, Liu, "The Skellam mechanism for differentially private federated learning", arXiv 2110.04995).

P[k] = e^(−v)·I_|k|(v). The Bessel functions follow from I_(k−1) = I_(k+1) + (2k/v)·I_k, run backwards (Miller), which
is stable, in integers of some 300 bits; that all P[k] add up to one takes the place of e^(−v). A draw is the number of
128-bit thresholds at or below a 128-bit uniform number. Its second half is drawn only where the first one meets a
threshold, about once in 10^15 draws. So a draw is off by less than 2^−110 in total variation, with tables of up to a
hundred thousand entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.errors import InvalidInput

_BITS = 300
"""Of the fixed-point numbers that the table is computed with."""
_SPREAD = 14
"""Standard deviations on each side; what lies beyond has probability below 2^−130 and goes to the ends."""
LARGEST_VARIANCE = float(1 << 26)
"""A table of about 230,000 entries: more noise than any word has room for."""
DISTANCE = 2.0**-110
"""The most by which one draw is off, in total variation."""


@dataclass(frozen=True)
class SkellamTable:
    """Thresholds of the distribution function, in units of 2^−128, as two halves of 64 bits."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    smallest: int
    """The value below the first threshold."""

    @staticmethod
    @lru_cache(maxsize=8)
    def of(variance: float) -> SkellamTable:
        """Return the table for a variance > 0."""
        if not 0 < variance <= LARGEST_VARIANCE:
            raise InvalidInput("noise_multiplier", f"gives a variance of {variance:g}, beyond 2^26: use a lower scale")
        weights = _bessel_weights(variance)
        thresholds, below = [], 0
        total = weights[0] + 2 * sum(weights[1:])
        ordered = [*reversed(weights[1:]), *weights]
        for weight in ordered[:-1]:
            below += weight
            thresholds.append(min((below << 128) // total, (1 << 128) - 1))
        return SkellamTable(
            np.array([each >> 64 for each in thresholds], np.uint64),
            np.array([each & ((1 << 64) - 1) for each in thresholds], np.uint64),
            -(len(weights) - 1),
        )

    def draw(self, stream: KeyStream, count: int) -> NDArray[np.int64]:
        """Return independent draws."""
        first = stream.read(8 * count).view("<u8").astype(np.uint64)
        places = np.searchsorted(self.high, first, side="right")
        # Where the first halves are equal, the second ones decide: P[tie] is about 2^−64 for each threshold.
        ties = np.flatnonzero((places > 0) & (self.high[np.maximum(places, 1) - 1] == first))
        for place in ties.tolist():
            places[place] = self._settled(int(first[place]), int(stream.read(8).view("<u8")[0]))
        return places + self.smallest

    def _settled(self, first: int, second: int) -> int:
        """Return how many thresholds are at or below a number whose first half meets one."""
        start = int(np.searchsorted(self.high, np.uint64(first), side="left"))
        behind = int(np.searchsorted(self.high, np.uint64(first), side="right"))
        return start + sum(int(low) <= second for low in self.low[start:behind].tolist())


def _bessel_weights(variance: float) -> list[int]:
    """Return numbers in proportion to I_0(v), I_1(v), … up to where they are negligible."""
    exact = Fraction(variance)
    last = ceil(_SPREAD * sqrt(variance)) + 60  # Small variances have long tails, in standard deviations.
    top = last + 40 + ceil(sqrt(variance))
    following, current = 0, 1 << 64
    found: list[int] = []
    for k in range(top, 0, -1):
        # I_(k−1) = I_(k+1) + 2k/v · I_k
        following, current = current, following + 2 * k * current * exact.denominator // exact.numerator
        if k - 1 <= last:
            found.append(current)
        if current.bit_length() > 2 * _BITS:  # Keep the leading bits; all that matters is the proportion.
            shift = current.bit_length() - _BITS
            following, current = following >> shift, current >> shift
            found = [each >> shift for each in found]
    return found[::-1]
