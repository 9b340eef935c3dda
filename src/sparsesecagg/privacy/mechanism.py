"""The distributed Skellam mechanism: what a user does to its slice so that every sum is differentially private.

    select → clip to C√α in the 2-norm → scale, round at random → add Skellam noise of variance μ/H → mask

H is the number of honest users in every sum that can be opened (`anonymity`), which the user computes itself. A sum of
n users has noise of variance n·μ/H, never below μ, even if users drop out or subtract their own noise. Rounding
may lengthen a vector, so the integer norm is checked: another draw if it is beyond Δ₂, and after four of them rounding
toward zero, which never lengthens anything. Sums wrap around in the word; that is post-processing and costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SECRET_SIZE, Entropy, Secret
from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.privacy.accountant import Cost, l1_bound, skellam_cost
from sparsesecagg.privacy.skellam import SkellamTable
from sparsesecagg.rounding import Floats, Pieces, Step

LEVELS = 2
"""Rounding steps per root-mean-square coordinate of a clipped slice: rounding then costs 3 % of the noise."""
_TRIES = 4
_ROOM = 6
"""Standard deviations of the noise that a word leaves room for, and four times the mean magnitude of the sum."""


class NoiseSeed(Secret):
    """The key of one upload's noise."""


@dataclass(frozen=True)
class Mechanism:
    """Clip, scale and noise of a run. Δ₂ is the largest integer norm of a user's slice."""

    clip: float
    """C: the largest 2-norm of a whole update."""
    multiplier: float
    """z: standard deviation of the noise in a sum, over Δ₂."""
    fraction: float
    """α: a slice has this fraction of the coordinates, and is clipped to C√α."""
    length: int
    """Coordinates of a slice."""

    @property
    def slice_clip(self) -> float:
        """The largest norm of a slice."""
        return self.clip * sqrt(self.fraction)

    @property
    def scale(self) -> float:
        """Integers per unit."""
        return LEVELS * sqrt(self.length) / self.slice_clip

    @cached_property
    def squared_norm(self) -> int:
        """Δ₂²: scaled norm, what rounding adds on average (a quarter per coordinate), and three deviations of it."""
        return LEVELS**2 * self.length + self.length // 4 + 3 * LEVELS * isqrt(self.length) + LEVELS

    @property
    def variance(self) -> float:
        """μ: of the noise in a sum."""
        return self.multiplier**2 * self.squared_norm

    @cached_property
    def cost(self) -> Cost:
        """What one sum costs each user in it."""
        norm = sqrt(self.squared_norm)
        return skellam_cost(self.variance, norm, l1_bound(norm, self.length))

    def largest_sum(self, users: int) -> int:
        """Return the magnitude that a word should hold, so that sums of this many users hardly ever wrap."""
        return round(4 * LEVELS * users + _ROOM * sqrt(2 * self.variance))

    def steps(self, honest: int, entropy: Entropy) -> tuple[Step, ...]:
        """Return the steps of one upload; `honest` is H."""
        noise = Noise(SkellamTable.of(self.variance / honest), KeyStream(NoiseSeed(entropy(SECRET_SIZE))))
        return ClipNorm(self), RoundWithin(self.squared_norm, int.from_bytes(entropy(16), "little")), noise


class ClipNorm(Step):
    """Shorten the slice to its clip, if it is longer, and scale it. What is not finite counts as 0."""

    name = "clip"

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._factor = mechanism.scale

    def begin(self, pieces: Pieces) -> None:
        """Compute the norm, in float64."""
        norm = sqrt(sum(float(np.square(_finite(piece)).sum()) for piece in pieces()))
        clip = self._mechanism.slice_clip
        # A little less than the clip, so that no rounding of floats leads beyond it.
        self._factor = self._mechanism.scale * (1.0 if norm <= clip * (1 - 1e-12) else clip / norm * (1 - 1e-12))

    def apply(self, piece: Floats) -> NDArray[np.float64]:
        """Return scaled floats."""
        return _finite(piece) * self._factor

    def undo(self, sums: NDArray[Any]) -> NDArray[np.float64]:
        """Return real numbers."""
        real: NDArray[np.float64] = np.divide(sums, self._mechanism.scale, dtype=np.float64)
        return real


class RoundWithin(Step):
    """Round at random so that the mean is right and the integer norm within its bound."""

    name = "round"

    def __init__(self, squared_norm: int, seed: int) -> None:
        """`seed` needs no secrecy: privacy rests on the norm, whatever is drawn."""
        self._bound, self._seed = squared_norm, seed
        self._attempt: int | None = 0
        self._rng = self._fresh()

    def begin(self, pieces: Pieces) -> None:
        """Find a draw that stays within the bound; toward zero if there is none."""
        for attempt in (*range(_TRIES), None):
            self._attempt = attempt
            self._rng = self._fresh()
            squared = 0
            for piece in pieces():
                squared += int(np.square(self.apply(piece)).sum())
            if squared <= self._bound:
                break
        self._rng = self._fresh()  # The same draws again, for the upload itself.

    def apply(self, piece: Floats) -> NDArray[np.int64]:
        """Return integers."""
        if self._attempt is None:
            return np.trunc(piece).astype(np.int64)
        return np.floor(piece + self._rng.random(piece.shape)).astype(np.int64)

    def _fresh(self) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64([self._seed, self._attempt or 0]))


class Noise(Step):
    """Add Skellam noise from a cryptographic stream."""

    name = "noise"

    def __init__(self, table: SkellamTable, stream: KeyStream) -> None:
        self._table, self._stream = table, stream

    def apply(self, piece: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return noisy integers."""
        return piece + self._table.draw(self._stream, len(piece))


def _finite(piece: Floats) -> NDArray[np.float64]:
    wide = piece.astype(np.float64)
    return wide if np.isfinite(wide).all() else np.where(np.isfinite(wide), wide, 0.0)
