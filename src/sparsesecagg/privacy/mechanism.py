"""The distributed Skellam mechanism: what a user does to its slice so that every sum is differentially private.

    select → clip to C√α in the 2-norm → scale, round at random → add Skellam noise of variance μ/H → mask

H is the number of honest users in every sum that can be opened (`anonymity`), which the user computes itself. A sum of
n users has noise of variance n·μ/H, never below μ, even if users drop out or subtract their own noise. Rounding
may lengthen a vector, so the integer norm is checked: another draw if it is beyond Δ₂, and after four of them rounding
toward zero, which never lengthens anything. Sums wrap around in the word; that is post-processing and costs no privacy.

Where the noise protects examples instead of users, an upload is a matrix with one row for each example. Rows are
clipped and rounded one by one, each with draws of its own, and then added up. So a row that is replaced by zeros
changes the integers of the sum by its own, of norm Δ₂ at most, whatever was drawn, and all else is as for users.
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
from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.accountant import Cost, l1_bound, skellam_cost
from sparsesecagg.privacy.skellam import SkellamTable
from sparsesecagg.rounding import Floats, Pieces, Step

LEVELS = 2
"""Rounding steps per root-mean-square coordinate of a clipped slice: rounding then costs 3 % of the noise."""
_FINE = 128
"""Rounding steps per clip of an example, at least: each row is rounded, and thousands may be in a sum."""
_TRIES = 4
_ROOM = 6
"""Standard deviations of the noise that a word leaves room for, and four times the mean magnitude of the sum."""


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
        norm = sqrt(self.squared_norm)
        return skellam_cost(self.variance, norm, l1_bound(norm, self.length))

    def largest_sum(self, users: int) -> int:
        """Return the magnitude that a word should hold, so that sums of this many users hardly ever wrap."""
        return round(4 * self.levels * users + _ROOM * sqrt(2 * self.variance))

    def steps(self, honest: int, entropy: Entropy) -> tuple[Step, ...]:
        """Return the steps of one upload; `honest` is H."""
        noise = Noise(SkellamTable.of(self.variance / honest), KeyStream(NoiseSeed(entropy(SECRET_SIZE))))
        return ClipNorm(self), RoundWithin(self.squared_norm, int.from_bytes(entropy(16), "little")), noise


class ClipNorm(Step):
    """Shorten the slice, or each row of it, to its clip, if longer, and scale it. What is not finite counts as 0."""

    name = "clip"

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._factor = np.full((1, 1), mechanism.scale)

    def begin(self, pieces: Pieces) -> None:
        """Compute the norms, in float64."""
        norm = np.sqrt(sum(np.square(self._rows(piece)).sum(axis=1, keepdims=True) for piece in pieces()))
        # A little less than the clip, so that no rounding of floats leads beyond it.
        clip = self._mechanism.slice_clip * (1 - 1e-12)
        self._factor = self._mechanism.scale * (clip / np.maximum(norm, clip))

    def apply(self, piece: Floats) -> NDArray[np.float64]:
        """Return scaled floats, as rows."""
        scaled: NDArray[np.float64] = self._rows(piece) * self._factor
        return scaled

    def _rows(self, piece: Floats) -> NDArray[np.float64]:
        if piece.ndim != 1 and not self._mechanism.per_example:
            raise InvalidInput("update", "must be one vector in a run whose noise protects users")
        return _finite(np.atleast_2d(piece))

    def undo(self, sums: NDArray[Any]) -> NDArray[np.float64]:
        """Return real numbers."""
        real: NDArray[np.float64] = np.divide(sums, self._mechanism.scale, dtype=np.float64)
        return real


class RoundWithin(Step):
    """Round rows at random so that the mean is right and each integer norm within its bound; add them up."""

    name = "round"

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

    name = "noise"

    def __init__(self, table: SkellamTable, stream: KeyStream) -> None:
        self._table, self._stream = table, stream

    def apply(self, piece: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return noisy integers."""
        return piece + self._table.draw(self._stream, len(piece))


def _finite(piece: Floats) -> NDArray[np.float64]:
    wide = piece.astype(np.float64)
    return wide if np.isfinite(wide).all() else np.where(np.isfinite(wide), wide, 0.0)
