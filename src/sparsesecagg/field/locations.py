"""Locations on the wire: which coordinates an upload carries, in the smaller of two codes.

A bitmap takes one bit per coordinate. Rice-coded gaps take close to the entropy: a gap g is written as the quotient
g >> k in unary
and k remainder bits. Both halves are kept in streams of their own, which lets NumPy write and read them
without a loop: the unary stream is a bitmap with a one at the end of each quotient.

    bitmap:  0x00 ‖ bits
    gaps:    0x01 ‖ k ‖ count (4 bytes) ‖ unary length in bytes (4) ‖ unary bits ‖ low bits, k per gap
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import MalformedMessage
from sparsesecagg.field.packing import number_type, pack_numbers, unpack_numbers

Positions = NDArray[np.signedinteger[Any]]

_BITMAP, _GAPS = b"\x00", b"\x01"
_HEADER = 10
_LARGEST_K = 32


def encode_locations(positions: Positions, dim: int) -> bytes:
    """Code strictly increasing positions below `dim`."""
    bitmap_size = 1 + (dim + 7) // 8
    count = len(positions)
    k = _best_k(count, int(positions[-1]) + 1 - count if count else 0)
    gaps = _steps(positions.astype(_shorter(dim), copy=False))
    gaps -= 1
    ends = gaps >> k  # A quotient ends behind the zeros and the ones of all before it.
    ends[1:] += 1
    ends = np.cumsum(ends, dtype=np.int64)  # NumPy writes to places of 64 bits three times as fast as of 32.
    unary_bits = int(ends[-1]) + 1 if count else 0
    unary_size, low_size = (unary_bits + 7) // 8, (count * k + 7) // 8
    if _HEADER + unary_size + low_size >= bitmap_size:
        return _BITMAP + _bits_at(positions, dim)
    return b"".join(
        [
            _GAPS,
            k.to_bytes(1, "little"),
            count.to_bytes(4, "little"),
            unary_size.to_bytes(4, "little"),
            _bits_at(ends, unary_bits),
            _low_bits(gaps, k),
        ]
    )


def decode_locations(data: bytes, dim: int) -> NDArray[np.int64]:
    """Read what `encode_locations` wrote; refuse everything else."""
    return np.cumsum(decode_steps(data, dim), dtype=np.int64) - 1


def decode_steps(data: bytes, dim: int) -> Positions:
    """Read locations as steps from one to the next, the first from −1; refuse what `encode_locations` did not write."""
    if len(data) > 1 + (dim + 7) // 8:  # The smaller code was chosen, so more than a bitmap never comes.
        raise MalformedMessage(f"locations of {dim} coordinates take at most {1 + (dim + 7) // 8} bytes")
    if data[:1] == _BITMAP:
        if len(data) != 1 + (dim + 7) // 8:
            raise MalformedMessage(f"a bitmap of {dim} coordinates takes {1 + (dim + 7) // 8} bytes, not {len(data)}")
        steps = _steps(_read_bits(data[1:]).astype(_shorter(dim)))
    elif data[:1] == _GAPS and len(data) >= _HEADER:
        steps = _decode_gaps(data, dim)
    else:
        raise MalformedMessage("the locations are in no known code")
    if int(steps.sum(dtype=np.int64)) > dim:
        raise MalformedMessage(f"a location is not below {dim}")
    return steps


def _decode_gaps(data: bytes, dim: int) -> Positions:
    k, count = data[1], int.from_bytes(data[2:6], "little")
    unary_size = int.from_bytes(data[6:10], "little")
    low_size = (count * k + 7) // 8
    if k > _LARGEST_K or len(data) != _HEADER + unary_size + low_size:
        raise MalformedMessage("the lengths of the coded gaps do not fit")
    ends = _read_bits(data[_HEADER : _HEADER + unary_size])
    if len(ends) != count or unary_size != ((int(ends[-1]) + 8) // 8 if count else 0):
        raise MalformedMessage("the number of coded gaps does not fit")
    # Without the ones, the last end is the sum of the quotients: below dim ≤ 2^40, so that no sum below overflows.
    if count and (int(ends[-1]) + 1 - count) << k >= dim:
        raise MalformedMessage(f"a location is not below {dim}")
    # A step is a gap and one: (quotient << k) + low + 1, and an end lies quotient + 1 behind the one before.
    steps = _steps(ends.astype(_shorter(dim) if k <= 16 else np.int64))
    if k:
        steps -= 1
        steps <<= k
        steps += unpack_numbers(data[_HEADER + unary_size :], count, k)
        steps += 1
    return steps


def _shorter(dim: int) -> type[np.signedinteger[Any]]:
    """Return the type that steps up to `dim` are computed in, with room for 16 low bits that lead beyond."""
    return np.int32 if dim <= 1 << 30 else np.int64  # Each pass over 32 bits takes a third of the time.


def _steps(increasing: Positions) -> Positions:
    """Return the differences of numbers ≥ 0, the first from −1."""
    steps = np.empty_like(increasing)
    steps[:1] = increasing[:1] + 1
    np.subtract(increasing[1:], increasing[:-1], out=steps[1:])
    return steps


def _low_bits(gaps: Positions, k: int) -> bytes:
    """Write the k low bits of each gap, one gap behind the other."""
    if not k:
        return b""
    low = gaps.astype(number_type(k))  # k < 32
    low &= low.dtype.type((1 << k) - 1)
    return bytes(pack_numbers(low, k))


def _best_k(count: int, zeros: int) -> int:
    """Return the Rice parameter for `count` gaps that add up to `zeros`: the k that minimises the expected length."""
    if not count:
        return 0
    # A gap costs k + 1 bits and, on average, a little less than mean / 2^k for its quotient.
    return min(
        range(_LARGEST_K),
        key=lambda k: count * (k + 1) + max(0, zeros - count * ((1 << k) - 1) // 2) // (1 << k),
    )


def _bits_at(positions: Positions, size: int) -> bytes:
    bits = np.zeros(size, np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _read_bits(data: bytes) -> NDArray[np.int64]:
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    return np.flatnonzero(bits.view(np.bool_))  # NumPy searches booleans several times faster than numbers.
