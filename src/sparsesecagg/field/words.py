"""Arithmetic modulo q on words of 8, 12, 16, 24 and 32 bits.

A mask only needs a group: adding a uniform element hides the other summand whatever the group is. So the short words
live modulo 2^bits, where the machine's own wrap-around does the reduction, and only the 32-bit word lives in the
paper's field, q = 2^32 − 5.

Sums are lazy: many words are added into an *accumulator* array and reduced once. For the short words the accumulator
is the word's own unsigned type. For 32 bits it is int64, which holds 2^24 terms of either sign without overflow.
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
_DTYPES: Final = {8: np.uint8, 12: np.uint16, 16: np.uint16, 24: np.uint32, 32: np.uint32}
WORD_BITS: Final = tuple(_DTYPES)

# Added before folding so that the sum is positive. A multiple of q; 2^56 > 2^24 terms of 2^32.
_OFFSET: Final = PAPER_MODULUS << 24
_LOW_32: Final = 0xFFFF_FFFF


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
        if bits not in _DTYPES:
            raise InvalidInput("modulus_bits", f"must be one of {', '.join(map(str, WORD_BITS))}, not {bits}")
        dtype = np.dtype(_DTYPES[bits])
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

    def reduce(self, sums: Accumulator) -> Words:
        """Return the canonical words of `sums`."""
        if self.bits in (8, 16):
            return sums
        if self.bits < 32:
            low: Words = np.bitwise_and(sums, self.dtype.type(self.modulus - 1))
            return low
        # 2^32 ≡ 5 (mod q): fold the high half onto the low half. |sums| < 2^56, so sums + offset < 2^57.
        folded = sums + _OFFSET
        folded = (folded & _LOW_32) + 5 * (folded >> 32)  # < 2^32 + 5·2^25
        folded = (folded & _LOW_32) + 5 * (folded >> 32)  # ≤ 2^32 + 4 < 2q
        folded -= np.int64(PAPER_MODULUS) * (folded >= PAPER_MODULUS)
        return folded.astype(self.dtype)

    def lift(self, words: Words) -> NDArray[np.int64]:
        """Map words to signed integers in [−largest − 1, largest] (φ⁻¹ in the paper)."""
        signed = words.astype(np.int64)
        signed -= self.modulus * (signed > self.largest)
        return signed
