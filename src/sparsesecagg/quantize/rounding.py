"""Scaled stochastic quantisation, c·Q_c(y) in the paper, with headroom that makes overflow impossible.

A sum of n contributions fits a word if each one has magnitude at most `limit` = largest // n. The level c follows:
`clip` is the largest real magnitude a contribution may have, and c = limit / clip. What lies beyond the clip is
clipped and counted, never wrapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word


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
            enough = next((bits for bits in WORD_BITS if Word.of(bits).largest >= contributors), 32)
            raise InvalidInput(
                "modulus_bits",
                f"of {word.bits} can't hold the sum of {contributors} contributors: use {enough} or more",
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
        real: Any = np.float32 if self.limit < 1 << 16 else np.float64
        with np.errstate(over="ignore"):  # What overflows here lies beyond the clip.
            scaled: NDArray[Any] = values.astype(real)
            np.multiply(scaled, real(self.scale * factor), out=scaled)
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
