"""Words on the wire: exactly `bits` bits each, little-endian, no padding but in the last byte."""

from __future__ import annotations

import numpy as np

from sparsesecagg.errors import MalformedMessage
from sparsesecagg.field.words import Word, Words


def packed_size(count: int, bits: int) -> int:
    """Return the bytes that `count` words of `bits` bits take."""
    return (count * bits + 7) // 8


def pack(words: Words, word: Word) -> memoryview:
    """Write canonical words as bytes; 8, 16 and 32 bits need no copy."""
    flat = np.ascontiguousarray(words).reshape(-1)
    if word.bits in (8, 16, 32):
        return flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).data
    if word.bits == 24:
        return memoryview(flat.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
    # Two words of 12 bits, a and b, make three bytes: a₀₋₇, a₈₋₁₁ + 16·b₀₋₃, b₄₋₁₁.
    pairs = np.zeros((len(flat) + 1) // 2 * 2, np.uint16)
    pairs[: len(flat)] = flat
    first, second = pairs[0::2], pairs[1::2]
    packed = np.empty((len(first), 3), np.uint8)
    packed[:, 0] = first & 0xFF
    packed[:, 1] = (first >> 8) | ((second & 0xF) << 4)
    packed[:, 2] = second >> 4
    return memoryview(packed.tobytes())[: packed_size(len(flat), 12)]


def unpack(data: bytes | memoryview, count: int, word: Word) -> Words:
    """Read `count` words; refuse any other length, values outside the field, and padding that is not zero."""
    if len(data) != packed_size(count, word.bits):
        raise MalformedMessage(
            f"{count} words of {word.bits} bits take {packed_size(count, word.bits)} bytes, not {len(data)}"
        )
    if word.bits in (8, 16, 32):
        words = np.frombuffer(data, word.dtype.newbyteorder("<")).astype(word.dtype, copy=False)
        if word.bits == 32 and count and int(words.max()) >= word.modulus:
            raise MalformedMessage("a word is not smaller than the modulus")
        return words
    raw = np.frombuffer(data, np.uint8)
    if word.bits == 24:
        wide = np.zeros((count, 4), np.uint8)
        wide[:, :3] = raw.reshape(-1, 3)
        return wide.view("<u4").reshape(-1).astype(word.dtype, copy=False)
    padded = np.zeros((count + 1) // 2 * 3, np.uint8)
    padded[: len(raw)] = raw
    triples = padded.reshape(-1, 3).astype(np.uint16)
    pairs = np.empty((len(triples), 2), np.uint16)
    pairs[:, 0] = triples[:, 0] | ((triples[:, 1] & 0xF) << 8)
    pairs[:, 1] = (triples[:, 1] >> 4) | (triples[:, 2] << 4)
    if count % 2 and pairs[-1, 1]:
        raise MalformedMessage("the padding of the last byte is not zero")
    return pairs.reshape(-1)[:count]
