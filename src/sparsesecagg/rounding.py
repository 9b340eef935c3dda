"""From real numbers to words and back: the steps of an upload between selecting and masking.

    select → clip → round → mask                            (a noise step goes between round and mask)

Each step works on pieces of the selected coordinates and has its inverse in the sum. Values are scaled so that a sum of
n contributions fits a word: each one has magnitude at most `limit` = largest // n, and `clip` is the largest real
magnitude that a contribution may have (c·Q_c(y) in the paper, with c = limit / clip). What lies beyond is clipped and
counted, never wrapped; what is not finite counts as 0, because no answer of a user may depend on its data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.field import Word

_LARGEST = float(np.finfo(np.float32).max)
_NEARLY = 1 - 2.0**-20
"""A value this far below the limit is not beyond it after any rounding of floats."""

_FRACTION_BITS = 16
_SHORT = 1 << 14
"""Limits below this leave room for 16 bits of fraction in 32, with a bit to spare for the sum with a draw."""

Floats = NDArray[np.floating[Any]]
Pieces = Callable[[], Iterable[Floats]]
"""Reads the selected values from the beginning, piece by piece."""


class Step(ABC):
    """One step of an upload."""

    clipped: int = 0
    """How many values the step has cut off so far."""

    def begin(self, pieces: Pieces) -> None:  # noqa: B027
        """Look at the whole upload before the first piece, where a step has to: a norm, say."""

    @abstractmethod
    def apply(self, piece: NDArray[Any]) -> NDArray[Any]:
        """Return the piece after the step; the piece may be overwritten."""


@dataclass(frozen=True)
class Quantizer:
    """The scale that reals are rounded on: integers in [−limit, limit]."""

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

    def steps(self, factor: float, rng: np.random.Generator) -> tuple[Step, ...]:
        """Return the steps that clip and round `factor` times an update; `rng` needs no secrecy."""
        return Clip(self, factor), Round(self, rng)

    def quantize(self, values: Floats, factor: float, rng: np.random.Generator) -> tuple[NDArray[Any], int]:
        """Clip and round `factor · values` at once; return integers of the same shape and how many were clipped."""
        clip, rounding = self.steps(factor, rng)
        return rounding.apply(clip.apply(values)), clip.clipped

    def dequantize(self, sums: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return the real sums, φ⁻¹(·)/c in the paper."""
        real: NDArray[np.float64] = np.divide(sums, self.scale, dtype=np.float64)
        return real


class Clip(Step):
    """Cut off what lies beyond the clip, and scale values so that the clip becomes the limit, or its weighted part."""

    def __init__(self, quantizer: Quantizer, factor: float) -> None:
        self._quantizer = quantizer
        self._rate = quantizer.scale * factor
        self._bound = quantizer.limit * min(1.0, abs(factor))
        require("clip", isfinite(self._rate), "must not be so small that values can't be scaled to it")

    def apply(self, piece: Floats) -> Floats:
        """Return scaled floats; a value is cut off before its weight counts, so that none weighs more than the clip."""
        bound, rate = self._bound, self._rate
        high, low = float(piece.max(initial=0)), float(piece.min(initial=0))
        if not (isfinite(high) and isfinite(low)):  # NaN and infinity carry over to the extremes.
            finite = np.isfinite(piece)
            self.clipped += int(piece.size - np.count_nonzero(finite))
            piece = np.where(finite, piece, piece.dtype.type(0))
            high, low = float(piece.max(initial=0)), float(piece.min(initial=0))
        real: Any = np.float32 if self._quantizer.limit < _SHORT else np.float64
        # Scaled in the wider type of the two, where values and rate are finite: even 0 times a huge value is a number
        # then. What overflows lies beyond the clip.
        wide = np.result_type(piece.dtype, real if abs(rate) <= _LARGEST else np.float64)
        with np.errstate(over="ignore"):
            scaled: NDArray[Any] = np.multiply(piece, wide.type(rate), dtype=wide).astype(real, copy=False)
        if max(high, -low) * abs(rate) > _NEARLY * bound:
            self.clipped += int(np.count_nonzero(np.abs(scaled) > bound / _NEARLY))  # A value at the clip is not cut.
            np.clip(scaled, -bound, bound, out=scaled)
        return scaled


class Round(Step):
    """Round scaled values stochastically, so that the mean is right."""

    def __init__(self, quantizer: Quantizer, rng: np.random.Generator) -> None:
        """`rng` must draw 64 bits at a time, as all but the oldest do."""
        self._rounded = _rounded_short if quantizer.limit < _SHORT else _rounded_long
        self._rng = rng

    def apply(self, piece: NDArray[Any]) -> NDArray[np.int32]:
        """Return integers."""
        return self._rounded(piece, self._rng)


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


@dataclass(frozen=True)
class Digits:
    """Private integers (a weight, a count) carried beside the values, as digits whose sums fit one word.

    An integer is written in digits of `digit_bits` bits, small enough that the digit sums of all contributors do not
    wrap. The server adds digits like any other words and puts the sum together at the end.
    """

    digit_bits: int
    counts: tuple[int, ...]

    @staticmethod
    def fit(word: Word, contributors: int, maxima: Sequence[int]) -> Digits:
        """Return the fewest digits; `maxima` are the largest single values (an entry of 0 takes no digit)."""
        # n·(2^k − 1) < modulus keeps a digit's sum from wrapping.
        digit_bits = ((word.modulus - 1) // contributors + 1).bit_length() - 1
        if digit_bits < 1 and any(maxima):
            raise InvalidInput(
                "modulus_bits",
                f"must be at least {contributors.bit_length()} to carry the weights of {contributors} contributors, "
                f"got {word.bits}",
            )
        return Digits(digit_bits, tuple(-(-maximum.bit_length() // digit_bits) if maximum else 0 for maximum in maxima))

    @property
    def total(self) -> int:
        """Words per set of integers."""
        return sum(self.counts)

    def write(self, values: Sequence[int]) -> NDArray[np.int32]:
        """Return the digits of the values, least significant first."""
        fit = all(value >> (self.digit_bits * count) == 0 for value, count in zip(values, self.counts, strict=True))
        require("weight", fit, "must not exceed the largest weight of the round")
        mask = (1 << self.digit_bits) - 1
        return np.array(
            [
                (value >> (self.digit_bits * place)) & mask
                for value, count in zip(values, self.counts, strict=True)
                for place in range(count)
            ],
            np.int32,
        )

    def read(self, sums: Sequence[int]) -> tuple[int, ...]:
        """Return the summed integers from `total` non-negative digit sums."""
        result, start = [], 0
        for count in self.counts:
            result.append(sum(int(sums[start + place]) << (self.digit_bits * place) for place in range(count)))
            start += count
        return tuple(result)
