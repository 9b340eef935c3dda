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
_NEARLY = 1 - 2.0**-20
"""Whoever stays this far below the limit is not beyond it after any rounding of floats."""

_FRACTION_BITS = 16
_SHORT = 1 << 14
"""Limits below this leave room for 16 bits of fraction in 32, with a bit to spare for the sum with a draw."""


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

        The integers have the shape of `values`. `rng` must draw 64 bits at a time, as all but the oldest do.
        """
        # NaN and infinity carry over to the extremes.
        high, low = float(values.max(initial=0)), float(values.min(initial=0))
        if not (isfinite(high) and isfinite(low)):
            raise InvalidInput("update", "must be finite, without NaN or infinity")
        rate = self.scale * factor
        if not isfinite(rate):
            raise InvalidInput("weight", "must be finite")
        real: Any = np.float32 if self.limit < _SHORT else np.float64
        # Scaled in the wider type of the two, where values and rate are finite: even 0 times a huge value is a number
        # then. What overflows lies beyond the clip.
        wide = np.result_type(values.dtype, real if abs(rate) <= _LARGEST else np.float64)
        with np.errstate(over="ignore"):
            scaled: NDArray[Any] = np.multiply(values, wide.type(rate), dtype=wide).astype(real, copy=False)
        clipped = 0
        if max(high, -low) * abs(rate) > _NEARLY * self.limit:
            clipped = int(np.count_nonzero(np.abs(scaled) > self.limit))
            np.clip(scaled, -self.limit, self.limit, out=scaled)
        return (_rounded_short if self.limit < _SHORT else _rounded_long)(scaled, rng), clipped

    def dequantize(self, sums: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return the real sums, φ⁻¹(·)/c in the paper."""
        real: NDArray[np.float64] = np.divide(sums, self.scale, dtype=np.float64)
        return real


def _rounded_short(scaled: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int32]:
    """Round by adding a 16-bit draw to a fixed-point number: ⌊x + u⌋. Overwrites `scaled`.

    The chance of going up is the fraction to the nearest 2^−16, so the mean is right to 2^−17 of a level. A quarter of
    the random bits that floats would take, and drawing them is what rounding spends its time on.
    """
    scaled *= np.float32(1 << _FRACTION_BITS)  # Exact.
    fixed: NDArray[np.int32] = np.rint(scaled, out=scaled).astype(np.int32)
    raw: NDArray[np.uint64] = rng.bit_generator.random_raw(-(-fixed.size // 4))
    fixed += raw.view(np.uint16)[: fixed.size].reshape(fixed.shape)
    fixed >>= _FRACTION_BITS
    return fixed


def _rounded_long(scaled: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int32]:
    """Round by comparing the fraction with a draw. Overwrites `scaled`."""
    low = np.floor(scaled)
    np.subtract(scaled, low, out=scaled)  # Exact, so that the draw decides by the true fraction.
    np.add(low, rng.random(low.shape) < scaled, out=low)
    return low.astype(np.int32)
