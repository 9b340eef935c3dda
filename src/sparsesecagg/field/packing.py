"""Words on the wire: exactly `bits` bits each, little-endian, no padding but in the last byte.

Words of 8, 16 and 32 bits lie in memory as they travel. Words of any other width fill whole bytes after a few of them
(four words of 6 bits are three bytes). Such a *group* is put together in 64-bit lanes, for many groups at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import MalformedMessage
from sparsesecagg.field.words import Word, Words

_MACHINE_BITS = (8, 16, 32)

_CHUNK_GROUPS = 1 << 14
"""Groups worked on at a time, so that all passes over them stay in the second-level cache."""

_LANE = np.dtype("<u8")
_LANE_BITS = 64

Bytes = NDArray[np.uint8]


def packed_size(count: int, bits: int) -> int:
    """Return the bytes that `count` words of `bits` bits take."""
    return (count * bits + 7) // 8


def pack(words: Words, word: Word) -> memoryview:
    """Write canonical words as bytes; 8, 16 and 32 bits need no copy."""
    flat = np.ascontiguousarray(words).reshape(-1)
    if word.bits in _MACHINE_BITS:
        return flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).data
    group_words, group_bytes = _group(word.bits)
    packed = np.empty((-(-len(flat) // group_words), group_bytes), np.uint8)
    for first, groups in _chunks(flat, group_words):
        lanes = _lanes(len(groups), group_bytes)
        for place, (lane, shift) in enumerate(_starts(word.bits)):
            wide = groups[:, place].astype(_LANE)
            lanes[:, lane] |= wide << shift
            if shift + word.bits > _LANE_BITS:
                lanes[:, lane + 1] |= wide >> (_LANE_BITS - shift)
        packed[first : first + len(groups)] = lanes.view(np.uint8)[:, :group_bytes]
    return packed.reshape(-1)[: packed_size(len(flat), word.bits)].data


def unpack(data: bytes | memoryview, count: int, word: Word) -> Words:
    """Read `count` words; refuse any other length, values outside the field, and padding that is not zero."""
    if len(data) != packed_size(count, word.bits):
        raise MalformedMessage(
            f"{count} words of {word.bits} bits take {packed_size(count, word.bits)} bytes, not {len(data)}"
        )
    if word.bits in _MACHINE_BITS:
        words = np.frombuffer(data, word.dtype.newbyteorder("<")).astype(word.dtype, copy=False)
        if word.bits == 32 and count and int(words.max()) >= word.modulus:
            raise MalformedMessage("a word is not smaller than the modulus")
        return words
    raw = np.frombuffer(data, np.uint8)
    used = count * word.bits % 8  # Bits of the last byte, 0 if it is full.
    if used and int(raw[-1]) >> used:
        raise MalformedMessage("the padding of the last byte is not zero")
    group_words, group_bytes = _group(word.bits)
    unpacked = np.empty((-(-count // group_words), group_words), word.dtype)
    for first, groups in _chunks(raw, group_bytes):
        lanes = _lanes(len(groups), group_bytes)
        lanes.view(np.uint8)[:, :group_bytes] = groups
        for place, (lane, shift) in enumerate(_starts(word.bits)):
            wide = lanes[:, lane] >> shift
            if shift + word.bits > _LANE_BITS:
                wide |= lanes[:, lane + 1] << (_LANE_BITS - shift)
            wide &= word.modulus - 1
            unpacked[first : first + len(groups), place] = wide
    return unpacked.reshape(-1)[:count]


def _group(bits: int) -> tuple[int, int]:
    """Return the smallest number of words that fill whole bytes, and the bytes."""
    return 8 // gcd(bits, 8), bits // gcd(bits, 8)


def _starts(bits: int) -> list[tuple[int, int]]:
    """Return the lane and the bit within it at which each word of a group starts."""
    return [divmod(bits * place, _LANE_BITS) for place in range(_group(bits)[0])]


def _lanes(groups: int, group_bytes: int) -> NDArray[np.uint64]:
    return np.zeros((groups, -(-group_bytes // _LANE.itemsize)), _LANE)


def _chunks(flat: NDArray[Any], size: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Cut into groups of `size` and yield many at a time, with the number of the first; the last group is filled up."""
    whole = len(flat) // size
    groups = flat[: whole * size].reshape(whole, size)
    for first in range(0, whole, _CHUNK_GROUPS):
        yield first, groups[first : first + _CHUNK_GROUPS]
    if whole * size < len(flat):
        last = np.zeros((1, size), flat.dtype)
        last[0, : len(flat) - whole * size] = flat[whole * size :]
        yield whole, last
