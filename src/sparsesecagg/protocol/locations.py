"""Locations on the wire: which coordinates an upload carries, in the smaller of two codes.

A bitmap takes one bit per coordinate. Rice-coded gaps take close to the entropy: a gap g is written as g >> k ones-
free unary bits and k low bits. Both halves are kept in streams of their own, which lets NumPy write and read them
without a loop: the unary stream is a bitmap with a one at the end of each quotient.

    bitmap:  0x00 ‖ bits
    gaps:    0x01 ‖ k ‖ count (4 bytes) ‖ unary length in bytes (4) ‖ unary bits ‖ low bits, k per gap
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import MalformedMessage

_BITMAP, _GAPS = b"\x00", b"\x01"
_HEADER = 10
_LARGEST_K = 32


def encode_locations(positions: NDArray[np.int64], dim: int) -> bytes:
    """Code strictly increasing positions below `dim`."""
    bitmap_size = 1 + (dim + 7) // 8
    gaps = np.diff(positions, prepend=-1) - 1
    k = _best_k(len(positions), int(gaps.sum()))
    quotients = gaps >> k
    ends = np.cumsum(quotients + 1) - 1
    unary_bits = int(ends[-1]) + 1 if len(ends) else 0
    unary_size, low_size = (unary_bits + 7) // 8, (len(gaps) * k + 7) // 8
    if _HEADER + unary_size + low_size >= bitmap_size:
        return _BITMAP + _bits_at(positions, dim)
    low = gaps & ((1 << k) - 1)
    low_bits = ((low[:, None] >> np.arange(k)) & 1).astype(np.uint8)
    return b"".join(
        [
            _GAPS,
            k.to_bytes(1, "little"),
            len(gaps).to_bytes(4, "little"),
            unary_size.to_bytes(4, "little"),
            _bits_at(ends, unary_bits),
            np.packbits(low_bits.reshape(-1), bitorder="little").tobytes(),
        ]
    )


def decode_locations(data: bytes, dim: int) -> NDArray[np.int64]:
    """Read what `encode_locations` wrote; refuse everything else."""
    if data[:1] == _BITMAP:
        if len(data) != 1 + (dim + 7) // 8:
            raise MalformedMessage(f"a bitmap of {dim} coordinates takes {1 + (dim + 7) // 8} bytes, not {len(data)}")
        positions = _read_bits(data[1:])
    elif data[:1] == _GAPS and len(data) >= _HEADER:
        positions = _decode_gaps(data)
    else:
        raise MalformedMessage("the locations are in no known code")
    if len(positions) and int(positions[-1]) >= dim:
        raise MalformedMessage(f"a location is not below {dim}")
    return positions


def _decode_gaps(data: bytes) -> NDArray[np.int64]:
    k, count = data[1], int.from_bytes(data[2:6], "little")
    unary_size = int.from_bytes(data[6:10], "little")
    low_size = (count * k + 7) // 8
    if k > _LARGEST_K or len(data) != _HEADER + unary_size + low_size:
        raise MalformedMessage("the lengths of the coded gaps do not fit")
    ends = _read_bits(data[_HEADER : _HEADER + unary_size])
    if len(ends) != count or unary_size != ((int(ends[-1]) + 8) // 8 if count else 0):
        raise MalformedMessage("the number of coded gaps does not fit")
    quotients = np.diff(ends, prepend=-1) - 1
    bits = np.unpackbits(np.frombuffer(data, np.uint8, offset=_HEADER + unary_size), bitorder="little")
    if bits[count * k :].any():
        raise MalformedMessage("the padding of the coded gaps is not zero")
    low = bits[: count * k].reshape(count, k).astype(np.int64) @ (np.int64(1) << np.arange(k, dtype=np.int64))
    return np.cumsum((quotients << k) + low + 1) - 1


def _best_k(count: int, zeros: int) -> int:
    """Return the Rice parameter for `count` gaps that add up to `zeros`: the k that minimises the expected length."""
    if not count:
        return 0
    # A gap costs k + 1 bits and, on average, a little less than mean / 2^k for its quotient.
    return min(
        range(_LARGEST_K),
        key=lambda k: count * (k + 1) + max(0, zeros - count * ((1 << k) - 1) // 2) // (1 << k),
    )


def _bits_at(positions: NDArray[np.int64], size: int) -> bytes:
    bits = np.zeros(size, np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _read_bits(data: bytes) -> NDArray[np.int64]:
    return np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little"))
