"""The distributed Skellam mechanism: what a user does to its slice so that every sum is differentially private.

    select → clip to C√α in the 2-norm → scale, round at random → add Skellam noise of variance μ/H → mask

H is the number of honest users in every sum that can be opened (`anonymity`), which the user computes itself. Sums of
Skellam variables are Skellam again (arXiv 2110.04995), so a sum of n users has noise of variance n·μ/H, never below μ.
Rounding may lengthen a vector, so the integer norm is checked: another draw if it is beyond Δ₂, and after four of them
rounding toward zero. A slice of norm C√α may be one coordinate alone, so each is cut at what a word has room for in a
sum of all users beside the noise, which is four times the root mean square of a slice that long, or more.

Where the noise protects examples, an upload is a matrix with one row for each. Rows are clipped and rounded one by one,
each with draws of its own, so that no row decides how others are rounded, and then added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, inf, isqrt, sqrt

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SECRET_SIZE, Entropy, Secret
from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.errors import require
from sparsesecagg.privacy.accountant import Cost, l1_bound, skellam_cost
from sparsesecagg.rounding import Floats, Pieces, Step

LEVELS = 2
"""Rounding steps per root-mean-square coordinate of a clipped slice: rounding then costs 3 % of the noise."""
_FINE = 128
"""Rounding steps per clip of an example, at least: each row is rounded, and thousands may be in a sum."""
_TRIES = 4
_PEAK = 4
"""Root mean squares of a slice as long as its clip: words have room for coordinates of so many at least."""
_ROOM = 6
"""Standard deviations of the noise that a word leaves room for."""


class NoiseSeed(Secret):
    """The key of one upload's noise."""


@dataclass(frozen=True)
class Mechanism:
    """Clip, scale and noise of a run. Δ₂ is the largest integer norm of a user's slice, or of an example's."""

    clip: float
    """C: the largest 2-norm of a whole update, or of an example's part in it."""
    multiplier: float
    """z: standard deviation of the noise in a sum, over Δ₂."""
    fraction: float
    """α: a slice has this fraction of the coordinates, and is clipped to C√α."""
    length: int
    """Coordinates of a slice."""
    per_example: bool = False
    """The noise protects examples, which are the rows of an upload; else users, whose upload is one vector."""

    @property
    def levels(self) -> int:
        """Rounding steps per root-mean-square coordinate of a clipped slice."""
        return LEVELS + _FINE // isqrt(self.length) if self.per_example else LEVELS

    @property
    def slice_clip(self) -> float:
        """The largest norm of a slice."""
        return self.clip * sqrt(self.fraction)

    @property
    def scale(self) -> float:
        """Integers per unit."""
        return self.levels * sqrt(self.length) / self.slice_clip

    @cached_property
    def squared_norm(self) -> int:
        """Δ₂²: scaled norm, what rounding adds on average (a quarter per coordinate), and three deviations of it."""
        levels = self.levels
        return levels**2 * self.length + self.length // 4 + 3 * levels * isqrt(self.length) + levels

    @property
    def variance(self) -> float:
        """μ: of the noise in a sum."""
        return self.multiplier**2 * self.squared_norm

    @cached_property
    def cost(self) -> Cost:
        """What one sum costs each user, or each example, in it."""
        return self.cost_of(1.0, 1)

    def cost_of(self, counted: float, times: int) -> Cost:
        """Return what a sum costs of whose noise a part is counted, and in which so many times the norm may change."""
        norm = sqrt(self.squared_norm)
        return skellam_cost(counted * self.variance, times * norm, times * l1_bound(norm, self.length))

    def largest_sum(self, users: int, honest: int) -> int:
        """Return the magnitude that a word should hold: for this many users, with six deviations of noise.

        All of them add noise, each 1/`honest` of what a sum needs. Examples are not cut.
        """
        return round(_PEAK * self.levels * users + self._noise_room(users, honest))

    def peak(self, largest: int, users: int, honest: int) -> float:
        """Return the largest coordinate of a scaled slice with which sums stay below `largest`; examples have none."""
        return inf if self.per_example else max(1.0, (largest - self._noise_room(users, honest)) // users)

    def _noise_room(self, users: int, honest: int) -> float:
        return _ROOM * sqrt(self.variance * max(2.0, users / max(1, honest)))

    def steps(self, honest: int, entropy: Entropy, peak: float = inf) -> tuple[Step, ...]:
        """Return the steps of one upload; `honest` is H, and `peak` the largest coordinate that words have room for."""
        noise = Noise(SkellamTable.of(self.variance / honest), KeyStream(NoiseSeed(entropy(SECRET_SIZE))))
        return ClipNorm(self, peak), RoundWithin(self.squared_norm, int.from_bytes(entropy(16), "little")), noise


class ClipNorm(Step):
    """Shorten the slice, or each row of it, to its clip, if longer, scale it, and cut what is beyond the peak.

    What is not finite counts as 0.
    """

    def __init__(self, mechanism: Mechanism, peak: float) -> None:
        self._mechanism, self._peak = mechanism, peak
        self._factor = np.full((1, 1), mechanism.scale)

    def begin(self, pieces: Pieces) -> None:
        """Compute the norms, in float64."""
        norm = np.sqrt(sum(np.square(self._rows(piece)).sum(axis=1, keepdims=True) for piece in pieces()))
        # A little less than the clip, so that no rounding of floats leads beyond it.
        clip = self._mechanism.slice_clip * (1 - 1e-12)
        self._factor = self._mechanism.scale * (clip / np.maximum(norm, clip))

    def apply(self, piece: Floats) -> NDArray[np.float64]:
        """Return scaled floats, as rows."""
        scaled: NDArray[np.float64] = np.clip(self._rows(piece) * self._factor, -self._peak, self._peak)
        return scaled

    def _rows(self, piece: Floats) -> NDArray[np.float64]:
        fits = piece.ndim == 1 or self._mechanism.per_example
        require("update", fits, "must be one vector in a run whose noise protects users")
        return np.nan_to_num(np.atleast_2d(piece).astype(np.float64), copy=False, nan=0.0, posinf=0.0, neginf=0.0)


class RoundWithin(Step):
    """Round rows at random so that the mean is right and each integer norm within its bound; add them up."""

    def __init__(self, squared_norm: int, seed: int) -> None:
        """`seed` needs no secrecy: privacy rests on the norm, whatever is drawn."""
        self._bound, self._seed = squared_norm, seed
        self._attempts = [0]
        """The draw that each row is rounded with; after the last one toward zero."""
        self._rngs = self._fresh()

    def begin(self, pieces: Pieces) -> None:
        """Find for each row a draw that stays within the bound; toward zero if there is none."""
        self._attempts = [0] * max((len(piece) for piece in pieces()), default=1)
        for _ in range(_TRIES):
            self._rngs = self._fresh()
            squared = sum(np.square(self._rounded(piece)).sum(axis=1) for piece in pieces())
            beyond = squared > self._bound
            if not np.any(beyond):
                break
            self._attempts = [each + int(far) for each, far in zip(self._attempts, beyond, strict=True)]
        self._rngs = self._fresh()  # The same draws again, for the upload itself.

    def apply(self, piece: Floats) -> NDArray[np.int64]:
        """Return integers, one row."""
        total: NDArray[np.int64] = self._rounded(piece).sum(axis=0)
        return total

    def _rounded(self, piece: Floats) -> NDArray[np.int64]:
        whole = np.empty(piece.shape, np.int64)
        for place, (row, rng) in enumerate(zip(piece, self._rngs, strict=True)):
            whole[place] = np.trunc(row) if rng is None else np.floor(row + rng.random(row.shape))
        return whole

    def _fresh(self) -> list[np.random.Generator | None]:
        """Return draws that depend on the row's number and attempt alone: no row decides how others are rounded."""
        seeds = [[self._seed, attempt, *([row] if row else [])] for row, attempt in enumerate(self._attempts)]
        return [np.random.Generator(np.random.SFC64(seed)) if seed[1] < _TRIES else None for seed in seeds]


class Noise(Step):
    """Add Skellam noise from a cryptographic stream."""

    def __init__(self, table: SkellamTable, stream: KeyStream) -> None:
        self._table, self._stream = table, stream

    def apply(self, piece: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return noisy integers."""
        return piece + self._table.draw(self._stream, len(piece))


# The sampler. P[k] = e^(−v)·I_|k|(v) for a variance v. The Bessel functions follow from I_(k−1) = I_(k+1) + (2k/v)·I_k,
# run backwards (Miller), which is stable, in integers of some 300 bits; that all P[k] add up to one takes the place of
# e^(−v). A draw is the number of 128-bit thresholds at or below a 128-bit uniform number, whose second half is drawn
# only where the first one meets a threshold, about once in 10^15 draws. So a draw is off by less than 2^−110 in total
# variation, with tables of up to a hundred thousand entries.

_BITS = 300
"""Of the fixed-point numbers that the table is computed with."""
_SPREAD = 14
"""Standard deviations on each side; what lies beyond has probability below 2^−130 and goes to the ends."""
LARGEST_VARIANCE = float(1 << 26)
"""A table of about 230,000 entries: more noise than any word has room for."""


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
        exists = 0 < variance <= LARGEST_VARIANCE
        require("noise_multiplier", exists, f"gives a variance of {variance:g}, beyond 2^26: use a lower scale")
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
