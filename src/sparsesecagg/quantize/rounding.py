"""Scaled stochastic quantisation, c·Q_c(y) in the paper, with headroom that makes overflow impossible.

A sum of n contributions fits a word if each one has magnitude at most `limit` = largest // n. The level c follows:
`clip` is the largest real magnitude a contribution may have, and c = limit / clip. What lies beyond the clip is
clipped and counted, never wrapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import Word

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Quantizer:
    """Rounds reals to integers in [−limit, limit] and back."""

    limit: int
    scale: float

    @staticmethod
    def fit(word: Word, contributors: int, clip: float) -> Quantizer:
        """Return the finest quantiser for sums of up to `contributors` values of magnitude ≤ `clip`."""
        limit = word.largest // contributors
        if limit < 1:
            # The largest sum of b bits is 2^(b − 1) − 1.
            raise InvalidInput(
                "modulus_bits",
                f"must be at least {contributors.bit_length() + 1} to hold the sum of {contributors} contributors, "
                f"got {word.bits}",
            )
        return Quantizer(limit, limit / clip)

    def quantize(
        self, values: NDArray[np.floating[Any]], factor: float, rng: np.random.Generator
    ) -> tuple[NDArray[Any], int]:
        """Round `factor · values` stochastically, so that the mean is right; return integers and how many were clipped.

        The integers have the shape of `values`. Short limits work in float32, which is exact below 2^24.
        """
        if not np.isfinite(values).all():
            raise InvalidInput("update", "must be finite, without NaN or infinity")
        rate = self.scale * factor
        if not isfinite(rate):
            raise InvalidInput("weight", "must be finite")
        real: Any = np.float32 if self.limit < 1 << 16 else np.float64
        # Scaled in the wider type of the two, where values and rate are finite: even 0 times a huge value is a number
        # then. What overflows lies beyond the clip.
        wide = np.result_type(values.dtype, real if abs(rate) <= _LARGEST else np.float64)
        with np.errstate(over="ignore"):
            scaled: NDArray[Any] = np.multiply(values, wide.type(rate), dtype=wide).astype(real, copy=False)
        clipped = int(np.count_nonzero(np.abs(scaled) > self.limit))
        if clipped:
            np.clip(scaled, -self.limit, self.limit, out=scaled)
        low = np.floor(scaled)
        np.subtract(scaled, low, out=scaled)  # Exact, so that the draw decides by the true fraction.
        np.add(low, rng.random(low.shape, dtype=real) < scaled, out=low)
        return low.astype(np.int32), clipped

    def dequantize(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the real sums, φ⁻¹(·)/c in the paper."""
        return sums / self.scale
