"""Words: the numbers that travel, their arithmetic modulo q, and their packing into exactly `bits` bits each.

A mask only needs a group: adding a uniform element hides the other summand whatever the group is. So the shorter words
live modulo 2^bits, where the machine's own wrap-around does the reduction, and only the 32-bit word lives in the
paper's field, q = 2^32 − 5.

Sums are lazy: many words are added into an *accumulator* array and reduced once. For the shorter words the accumulator
is the word's own unsigned type. For 32 bits it is int64, which holds 2^30 terms of either sign without overflow.

On the wire words are little-endian, without padding but in the last byte. Words of 8, 16 and 32 bits lie in memory as
they travel. Of any other width, eight bytes of memory hold two, four or eight words; they are pushed together within a
64-bit *lane*, for many lanes at once: neighbours first, then pairs of them, then fours. A lane then is one number of up
to 62 bits, and one, two or four such numbers fill whole bytes: a *group*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, MalformedMessage

Words = NDArray[Any]
"""Unsigned integers in [0, modulus), in the word's own dtype."""

Accumulator = NDArray[Any]
"""Sums not yet reduced, in the word's accumulator dtype."""

PAPER_MODULUS: Final = 2**32 - 5
WORD_BITS: Final = tuple(range(4, 33))
"""All widths there are."""

_CHUNK: Final = 1 << 15
"""Elements worked on at a time: 256 kB of int64, so that several passes over them stay in the second-level cache."""
_CHUNK_LANES = 1 << 14
"""The same for lanes."""

_MACHINE_BITS = (8, 16, 32)
_LANE = np.dtype("<u8")
_LANE_BITS = 64

Lanes = NDArray[np.uint64]


def number_type(bits: int) -> np.dtype[Any]:
    """Return the smallest unsigned type that holds numbers of up to 32 bits."""
    return np.dtype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)


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
        dtype = number_type(bits)
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


def packed_size(count: int, bits: int) -> int:
    """Return the bytes that `count` words of `bits` bits take."""
    return (count * bits + 7) // 8


def pack(words: Words, word: Word) -> memoryview:
    """Write canonical words as bytes; 8, 16 and 32 bits need no copy."""
    return pack_numbers(words, word.bits)


def unpack(data: bytes | memoryview, count: int, word: Word) -> Words:
    """Read `count` words; refuse any other length, values outside the field, and padding that is not zero."""
    words = unpack_numbers(data, count, word.bits)
    if word.bits == 32 and count and int(words.max()) >= word.modulus:
        raise MalformedMessage("a word is not smaller than the modulus")
    return words


def pack_numbers(numbers: NDArray[Any], bits: int) -> memoryview:
    """Write numbers of 1 to 32 bits, of type `number_type(bits)`, as bytes; 8, 16 and 32 bits need no copy."""
    flat = np.ascontiguousarray(numbers).reshape(-1)
    if bits in _MACHINE_BITS:
        return flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).data
    in_lane = _LANE.itemsize // flat.dtype.itemsize
    filled = in_lane * bits
    lanes_together, group_bytes = _group(filled)
    packed = np.empty((-(-len(flat) // (in_lane * lanes_together)), group_bytes), np.uint8)
    for first, groups in _chunks(flat, in_lane * lanes_together):
        together: Lanes = groups.astype(flat.dtype.newbyteorder("<"), copy=False).reshape(-1).view(_LANE)
        for low, high, shift in _halves(bits, in_lane):
            together = (together & low) | ((together >> shift) & high)
        lanes = together.reshape(len(groups), lanes_together)
        joined = _joined(lanes, filled, group_bytes) if lanes_together > 1 else lanes
        _copy_columns(joined.view(np.uint8), packed[first : first + len(groups)])
    return packed.reshape(-1)[: packed_size(len(flat), bits)].data


def unpack_numbers(data: bytes | memoryview, count: int, bits: int) -> NDArray[Any]:
    """Read `count` numbers of 1 to 32 bits; refuse any other length, and padding that is not zero."""
    if len(data) != packed_size(count, bits):
        raise MalformedMessage(f"{count} words of {bits} bits take {packed_size(count, bits)} bytes, not {len(data)}")
    dtype = number_type(bits)
    if bits in _MACHINE_BITS:
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype, copy=False)
    raw = np.frombuffer(data, np.uint8)
    used = count * bits % 8  # Bits of the last byte, 0 if it is full.
    if used and int(raw[-1]) >> used:
        raise MalformedMessage("the padding of the last byte is not zero")
    in_lane = _LANE.itemsize // dtype.itemsize
    filled = in_lane * bits
    lanes_together, group_bytes = _group(filled)
    unpacked = np.empty((-(-len(raw) // group_bytes), in_lane * lanes_together), dtype)
    for first, groups in _chunks(raw, group_bytes):
        joined = np.zeros((len(groups), -(-group_bytes // _LANE.itemsize)), _LANE)
        _copy_columns(groups, joined.view(np.uint8))
        lanes = (_parted(joined, filled, lanes_together) if lanes_together > 1 else joined).reshape(-1)
        for low, high, shift in reversed(_halves(bits, in_lane)):
            lanes = (lanes & low) | ((lanes & high) << shift)
        numbers = lanes.view(dtype.newbyteorder("<")).reshape(len(groups), -1)
        unpacked[first : first + len(groups)] = numbers
    return unpacked.reshape(-1)[:count]


def _copy_columns(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    """Copy the bytes of each row that both arrays have; by columns, because NumPy copies short rows slowly."""
    width = min(source.shape[1], target.shape[1])
    if width > _LANE.itemsize:
        target[:, :width] = source[:, :width]
        return
    for column in range(width):
        target[:, column] = source[:, column]


def _joined(lanes: Lanes, filled: int, group_bytes: int) -> Lanes:
    """Write the `filled` low bits of the lanes of each group one behind the other."""
    joined = np.zeros((len(lanes), -(-group_bytes // _LANE.itemsize)), _LANE)
    for place in range(lanes.shape[1]):
        lane, shift = divmod(filled * place, _LANE_BITS)
        joined[:, lane] |= lanes[:, place] << shift
        if shift + filled > _LANE_BITS:
            joined[:, lane + 1] |= lanes[:, place] >> (_LANE_BITS - shift)
    return joined


def _parted(joined: Lanes, filled: int, together: int) -> Lanes:
    """Undo `_joined`; what lies above the `filled` bits of a lane is of no account."""
    lanes = np.empty((len(joined), together), _LANE)
    for place in range(together):
        lane, shift = divmod(filled * place, _LANE_BITS)
        lanes[:, place] = joined[:, lane] >> shift
        if shift + filled > _LANE_BITS:
            lanes[:, place] |= joined[:, lane + 1] << (_LANE_BITS - shift)
    return lanes


@cache
def _halves(bits: int, in_lane: int) -> list[tuple[np.uint64, np.uint64, np.uint64]]:
    """Return the steps that push the words of a lane together, each by masks and a shift.

    In each part of the lane, what the lower mask covers stays, and the upper half moves down by `shift` to where the
    upper mask is. Neighbours come first, then pairs, then fours.
    """
    steps = []
    lane, count = _LANE_BITS // in_lane, 1
    while count < in_lane:
        field = (1 << count * bits) - 1
        low = sum(field << start for start in range(0, _LANE_BITS, 2 * lane))
        steps.append((np.uint64(low), np.uint64(low << count * bits), np.uint64(lane - count * bits)))
        lane, count = 2 * lane, 2 * count
    return steps


def _group(filled: int) -> tuple[int, int]:
    """Return the smallest number of lanes whose `filled` bits are whole bytes together, and the bytes."""
    return 8 // gcd(filled, 8), filled // gcd(filled, 8)


def _chunks(flat: NDArray[Any], size: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Cut into groups of `size` and yield many at a time, with the number of the first; the last group is filled up."""
    whole = len(flat) // size
    groups = flat[: whole * size].reshape(whole, size)
    step = max(1, _CHUNK_LANES * _LANE.itemsize // (size * flat.dtype.itemsize))
    for first in range(0, whole, step):
        yield first, groups[first : first + step]
    if whole * size < len(flat):
        last = np.zeros((1, size), flat.dtype)
        last[0, : len(flat) - whole * size] = flat[whole * size :]
        yield whole, last
