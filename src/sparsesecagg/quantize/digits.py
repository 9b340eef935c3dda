"""Non-negative integers carried as several words, so that even the shortest words can sum weights of thousands.

An integer is written in digits of `digit_bits` bits, small enough that the digit sums of all contributors fit one
word without wrapping. The server adds digits like any other words and puts the sum together at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import Word


@dataclass(frozen=True)
class Digits:
    """How to write integers up to the given maxima, each summed over at most `contributors` users."""

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
        if any(value >> (self.digit_bits * count) for value, count in zip(values, self.counts, strict=True)):
            raise InvalidInput("weight", "must not exceed the largest weight of the round")
        mask = (1 << self.digit_bits) - 1
        return np.array(
            [
                (value >> (self.digit_bits * place)) & mask
                for value, count in zip(values, self.counts, strict=True)
                for place in range(count)
            ],
            np.int32,
        )

    def read(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the summed integers; `sums` has shape (…, total) of non-negative digit sums."""
        result = np.zeros((*sums.shape[:-1], len(self.counts)), np.int64)
        start = 0
        for index, count in enumerate(self.counts):
            for place in range(count):
                result[..., index] += sums[..., start + place] << (self.digit_bits * place)
            start += count
        return result
