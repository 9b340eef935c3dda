"""Arithmetic modulo q on words of 4 to 32 bits.

A mask only needs a group: adding a uniform element hides the other summand whatever the group is. So the shorter words
live modulo 2^bits, where the machine's own wrap-around does the reduction, and only the 32-bit word lives in the
paper's field, q = 2^32 − 5.

Sums are lazy: many words are added into an *accumulator* array and reduced once. For the shorter words the accumulator
is the word's own unsigned type. For 32 bits it is int64, which holds 2^30 terms of either sign without overflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput

Words = NDArray[Any]
"""Unsigned integers in [0, modulus), in the word's own dtype."""

Accumulator = NDArray[Any]
"""Sums not yet reduced, in the word's accumulator dtype."""

PAPER_MODULUS: Final = 2**32 - 5
WORD_BITS: Final = tuple(range(4, 33))
"""All widths there are."""

_CHUNK: Final = 1 << 15
"""Elements worked on at a time: 256 kB of int64, so that several passes over them stay in the second-level cache."""


@dataclass(frozen=True)
class Word:
    """One word size and its arithmetic. Make one with `Word.of(bits)`."""

    bits: int
    modulus: int
    dtype: np.dtype[Any]
    accumulator: np.dtype[Any]

    @staticmethod
    @cache
    def of(bits: int) -> Word:
        """Return the word of `bits` bits."""
        if bits not in WORD_BITS:
            raise InvalidInput("modulus_bits", f"must be from {WORD_BITS[0]} to {WORD_BITS[-1]}, got {bits}")
        dtype = np.dtype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)
        if bits == 32:
            return Word(bits, PAPER_MODULUS, dtype, np.dtype(np.int64))
        return Word(bits, 1 << bits, dtype, dtype)

    @property
    def largest(self) -> int:
        """The largest magnitude that a signed sum may have: [−largest, largest] maps into the word one to one."""
        return (self.modulus - 1) // 2

    def zeros(self, shape: tuple[int, ...]) -> Accumulator:
        """Return an empty sum."""
        return np.zeros(shape, self.accumulator)

    def embed(self, values: NDArray[np.integer[Any]]) -> Accumulator:
        """Map signed integers into the group (φ in the paper), as a fresh accumulator."""
        return values.astype(self.accumulator)  # Two's complement is the residue modulo 2^bits, after `reduce`.

    def negate(self, words: Words) -> None:
        """Turn words into their negatives, in place; 0 may become the modulus, which is as good in a sum."""
        # The modulus of 8 and 16 bits is the machine word's own: it is 0 there.
        np.subtract(self.dtype.type(self.modulus % (1 << 8 * self.dtype.itemsize)), words, out=words)

    def reduce(self, sums: Accumulator) -> Words:
        """Return the canonical words of `sums`."""
        if self.bits in (8, 16):
            return sums
        if self.bits < 32:
            low: Words = np.bitwise_and(sums, self.dtype.type(self.modulus - 1))
            return low
        flat = sums.reshape(-1)
        words = np.empty(flat.shape, self.dtype)
        for start in range(0, len(flat), _CHUNK):
            part = flat[start : start + _CHUNK]
            # NumPy divides by a constant with vector instructions, but takes remainders one by one. The floor makes
            # the remainder of a negative sum canonical too. |part| < 2^62, so quotient · q > −2^62 − q fits.
            quotient = part // self.modulus
            quotient *= self.modulus
            np.subtract(part, quotient, out=words[start : start + _CHUNK], casting="unsafe")
        return words.reshape(sums.shape)

    def lift(self, sums: Accumulator) -> NDArray[np.int64]:
        """Map sums, reduced or not, to signed integers in [−largest − 1, largest] (φ⁻¹ in the paper)."""
        return self.lift_short(sums).astype(np.int64)

    def lift_short(self, sums: Accumulator) -> NDArray[np.signedinteger[Any]]:
        """Lift to integers as short as the words; those of 8 and 16 bits stay where they are, in the same memory."""
        short = np.dtype(f"i{self.dtype.itemsize}")
        if self.bits in (8, 16):
            same: NDArray[np.signedinteger[Any]] = sums.view(short)
            return same
        lifted = np.empty(sums.shape, short)
        flat, target = sums.reshape(-1), lifted.reshape(-1)
        for start in range(0, len(flat), _CHUNK):
            self._lift_part(flat[start : start + _CHUNK], target[start : start + _CHUNK])
        return lifted

    def _lift_part(self, part: Accumulator, target: NDArray[np.signedinteger[Any]]) -> None:
        if self.bits == 32:
            # The nearest multiple of q, taken away, leaves the signed remainder. |part| < 2^62.
            quotient = part.astype(np.int64)
            quotient += self.largest
            quotient //= self.modulus
            quotient *= self.modulus
            np.subtract(part, quotient, out=target, casting="unsafe")
        else:
            # Shifted to the top of the machine word, the sign bit is where the machine expects it.
            spare = 8 * self.dtype.itemsize - self.bits
            np.right_shift((part << self.dtype.type(spare)).view(target.dtype), spare, out=target)
