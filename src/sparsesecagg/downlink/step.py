"""One step: reals to small integers, one power of two per block of 512, on the wire, and added to a model.

Levels are symmetric around 0 (−127 … 127, −7 … 7 or −1 … 1), so a coordinate that should not move does not. The scale
of a block is the power of two with the smallest squared error among a few: what exceeds the range is cut off, and the
caller keeps the difference for the next step. Which scale is chosen need not be the same on every machine, since it
travels as one byte, the exponent field of a float32; what follows from it is exact. Small levels are frequent, so all
of it travels under a Huffman code (DEFLATE without matches). docs/downlink.md has every byte.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.downlink.vector import BLOCK, Vector, block_count, in_range
from sparsesecagg.errors import MalformedMessage, WrongStep

VERSION = 2
STEP_BITS = (2, 4, 8)
EMPTY = 0
"""The exponent byte of a block that stays as it is."""
EXPONENT_BIAS = 127
LARGEST_EXPONENT = 100 + EXPONENT_BIAS
"""127 · 2^100 is far from float32's end, and no model has values beyond 2^100."""

# How many powers of two are tried. Fewer levels have more to gain from a finer scale that cuts off the largest values;
# one more did not lower the error of a training run for any width (docs/downlink.md).
_CANDIDATES = {2: 3, 4: 2, 8: 1}

Bytes = NDArray[np.uint8]
Levels = NDArray[np.int8]

_HEADER = struct.Struct("<BBQQQ8s32s")
_RAW_DEFLATE = -15
_LARGEST_RATIO = 8
"""A Huffman code takes one bit or more for a byte, so a few bytes can't unpack to gigabytes."""
_ROWS = 128
"""Blocks handled at a time: 256 kB of float32, which stays in the processor's cache."""


def largest_level(bits: int) -> int:
    """Return the largest integer that a coordinate may carry."""
    return (1 << (bits - 1)) - 1


def scales_of(exponents: Bytes) -> Vector:
    """Return 2^(b − 127) for exponent bytes b from 1 to 254: the byte is the float's own exponent field."""
    fields: NDArray[np.uint32] = exponents.astype(np.uint32) << np.uint32(23)
    return fields.view(np.float32)


def round_blocks(blocks: Vector, bits: int) -> tuple[Bytes, Levels]:
    """Round blocks of shape (n, 512) to exponent bytes (n,) and the levels of blocks that are not empty (m, 512).

    Values must be finite. Rounding is to the nearest level: with the error kept for the next step nothing is lost, and
    random rounding only adds noise (docs/downlink.md).
    """
    largest = largest_level(bits)
    peaks = np.maximum(blocks.max(axis=1), -blocks.min(axis=1))
    exponents = _fitting_exponents(peaks, largest)
    if (tried := _CANDIDATES[bits]) > 1:
        exponents = _best_exponents(blocks, exponents, largest, tried)
    levels = _nearest(blocks, exponents, largest).astype(np.int8)
    moved = levels.any(axis=1)
    exponents[~moved] = EMPTY
    return exponents, levels if moved.all() else levels[moved]


def round_change(target: Vector, model: Vector, error: Vector, bits: int) -> tuple[bytes, bytes]:
    """Round target − model + error to the exponents and the packed levels of a step.

    Where the target equals the model in a whole block, the block is empty and its error waits.
    """
    dim = len(target)
    exponents = np.empty(block_count(dim), np.uint8)
    kept: list[Levels] = []
    for first in range(0, len(exponents), _ROWS):
        part = slice(first * BLOCK, min((first + _ROWS) * BLOCK, dim))
        blocks = np.zeros((block_count(part.stop - part.start), BLOCK), np.float32)
        wanted = blocks.reshape(-1)[: part.stop - part.start]
        np.subtract(target[part], model[part], out=wanted)
        untouched = ~blocks.any(axis=1)
        wanted += error[part]
        blocks[untouched] = 0
        exponents[first : first + _ROWS], levels = round_blocks(blocks, bits)
        kept.append(levels)
    packed = pack_levels(np.concatenate(kept), bits)[: levels_size(exponents, dim, bits)]
    return exponents.tobytes(), packed.tobytes()


def _fitting_exponents(peaks: Vector, largest: int) -> Bytes:
    """Return the smallest exponents for which no value is further than half a level beyond the largest one."""
    mantissas, powers = np.frexp(peaks / np.float32(largest + 0.5))  # peak = mantissa · 2^power, mantissa in [½, 1)
    powers -= mantissas == 0.5
    fields: Bytes = np.clip(powers + EXPONENT_BIAS, 1, LARGEST_EXPONENT).astype(np.uint8)
    return fields


def _best_exponents(blocks: Vector, fitting: Bytes, largest: int, tried: int) -> Bytes:
    """Return for each block the exponent with the least squared error among `fitting` and those just below it."""
    best, least = fitting, np.full(len(blocks), np.inf, np.float32)
    scaled, nearest = np.empty_like(blocks), np.empty_like(blocks)
    for lower in range(tried):
        exponents = np.maximum(fitting, lower + 1) - np.uint8(lower)
        np.multiply(blocks, _inverse(exponents), out=scaled)
        np.rint(scaled, out=nearest)
        np.clip(nearest, -largest, largest, out=nearest)
        scaled -= nearest
        # In units of the fitting scale, so that tiny steps do not underflow when they are squared.
        errors = np.einsum("ij,ij->i", scaled, scaled) * np.float32(0.25**lower)
        better = errors < least
        best = np.where(better, exponents, best)
        least = np.minimum(errors, least)
    return best


def _nearest(blocks: Vector, exponents: Bytes, largest: int) -> Vector:
    scaled = blocks * _inverse(exponents)
    np.rint(scaled, out=scaled)
    return np.clip(scaled, -largest, largest, out=scaled)


def _inverse(exponents: Bytes) -> Vector:
    """Return 1 / scale as a column; exact, for exponents 1 … 227 it is 2^126 … 2^−100."""
    return scales_of(np.uint8(2 * EXPONENT_BIAS) - exponents)[:, None]


def pack_levels(levels: Levels, bits: int) -> Bytes:
    """Write levels of shape (m, 512) as two's complement of `bits` bits each, the first one in the lowest bits."""
    raw = levels.view(np.uint8)
    if bits == 8:
        return raw.reshape(-1)
    # The 8 / bits levels of a byte lie in one machine word, 8 bits apart; each moves down to its place in the byte.
    each, mask = 8 // bits, (1 << bits) - 1
    words = raw.view(f"<u{each}")
    packed = words & mask
    for place in range(1, each):
        packed |= (words >> (8 - bits) * place) & (mask << bits * place)
    return packed.astype(np.uint8).reshape(-1)


def unpack_levels(packed: Bytes, bits: int) -> Vector:
    """Return the levels as float32, one after the other; `packed` must hold valid codes only."""
    return _TABLES[bits].take(packed, axis=0).reshape(-1)


def _table(bits: int) -> Vector:
    """Return the 8 / bits levels of each byte, shape (256, 8 / bits)."""
    codes = np.arange(256)[:, None] >> np.arange(0, 8, bits) & (1 << bits) - 1
    return np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes).astype(np.float32)


_TABLES = {bits: _table(bits) for bits in STEP_BITS}
_VALID = {
    bits: bytes(np.flatnonzero((np.abs(table) <= largest_level(bits)).all(axis=1)).tolist())
    for bits, table in _TABLES.items()
}
"""Bytes in which every code is a level: −2^(bits − 1) is none."""


@dataclass(frozen=True)
class ModelStep:
    """A rounded step from one model to the next."""

    bits: int
    dim: int
    before: int
    """The number of the model that the step starts from."""
    after: int
    """The number of the model that it leads to; larger than `before`."""
    digest_before: bytes
    """The first 8 bytes of the digest of the model before: enough to notice a wrong one."""
    digest_after: bytes
    """All 32 bytes of the digest of the model after."""
    exponents: bytes
    levels: bytes

    def encode(self) -> bytes:
        """Return the step as bytes."""
        header = _HEADER.pack(
            VERSION, self.bits, self.dim, self.before, self.after, self.digest_before, self.digest_after
        )
        return header + self.packed

    @cached_property
    def packed(self) -> bytes:
        """Exponents and levels under a Huffman code."""
        coder = zlib.compressobj(wbits=_RAW_DEFLATE, strategy=zlib.Z_HUFFMAN_ONLY)
        return coder.compress(self.exponents + self.levels) + coder.flush()

    @staticmethod
    def decode(data: bytes | memoryview) -> ModelStep:
        """Read a step, refuse what `encode` would not have packed. Takes at most nine times the memory of `data`."""
        if len(data) < _HEADER.size:
            raise MalformedMessage(f"a step has {_HEADER.size} bytes or more, got {len(data)}")
        version, bits, dim, before, after, digest_before, digest_after = _HEADER.unpack_from(data)
        if version != VERSION:
            raise MalformedMessage(f"steps have version {VERSION}, got {version}")
        if bits not in STEP_BITS:
            raise MalformedMessage(f"a step has 2, 4 or 8 bits per coordinate, got {bits}")
        if after <= before:
            raise MalformedMessage(f"a step leads to a later model, got {before} to {after}")
        body, blocks = _unpacked(data[_HEADER.size :]), block_count(dim)
        if not dim or blocks > len(body):
            raise MalformedMessage(f"{dim} coordinates do not fit a step of {len(data)} bytes")
        step = ModelStep(bits, dim, before, after, digest_before, digest_after, body[:blocks], body[blocks:])
        step._check_body()
        return step

    @property
    def size(self) -> int:
        """The bytes that the step takes on the wire."""
        return _HEADER.size + len(self.packed)

    def _check_body(self) -> None:
        exponents = np.frombuffer(self.exponents, np.uint8)
        if exponents.max() > LARGEST_EXPONENT:
            raise MalformedMessage(f"an exponent is {exponents.max()}, the largest is {LARGEST_EXPONENT}")
        size = levels_size(exponents, self.dim, self.bits)
        if len(self.levels) != size:
            raise MalformedMessage(f"the levels of this step take {size} bytes, not {len(self.levels)}")
        if self.levels.translate(None, _VALID[self.bits]):
            raise MalformedMessage("a code is not a level")
        cut = self.dim % BLOCK if exponents[-1] != EMPTY else 0
        if (spare := cut * self.bits % 8) and self.levels[-1] >> spare:
            raise MalformedMessage("the padding of the last byte is not zero")
        if not padded_levels(self).any(axis=1).all():
            raise MalformedMessage("a block of zeros is not marked as empty")


def _unpacked(packed: bytes | memoryview) -> bytes:
    coder = zlib.decompressobj(wbits=_RAW_DEFLATE)
    try:
        body = coder.decompress(packed, _LARGEST_RATIO * len(packed))
    except zlib.error:
        raise MalformedMessage("a step is not packed as it should be") from None
    if not coder.eof or coder.unused_data:
        raise MalformedMessage("a step is cut off, goes on behind its end, or unpacks to more than its code can hold")
    return body


def levels_size(exponents: Bytes, dim: int, bits: int) -> int:
    """Return the bytes of the levels: whole blocks, and of a shorter last block what its coordinates need."""
    full = int(np.count_nonzero(exponents)) * BLOCK * bits // 8
    missing = -dim % BLOCK if exponents[-1] != EMPTY else 0
    return full - missing * bits // 8


def padded_levels(step: ModelStep) -> Bytes:
    """Return the packed levels, one row per block that is not empty, a shorter last block filled up with zeros."""
    held, width = np.frombuffer(step.levels, np.uint8), BLOCK * step.bits // 8
    if missing := -len(held) % width:
        held = np.concatenate([held, np.zeros(missing, np.uint8)])
    return held.reshape(-1, width)


def add_step(model: Vector, step: ModelStep) -> Vector:
    """Return the model after a step: float32(model + level · scale) for each coordinate of a block that is not empty.

    The product is exact, since a level has at most 7 bits and a scale is a power of two, so the addition is the only
    rounding, and IEEE 754 defines it. Empty blocks keep their bits.
    """
    if len(model) != step.dim:
        raise WrongStep(f"it is for a model of {step.dim} coordinates, and this one has {len(model)}")
    exponents = np.frombuffer(step.exponents, np.uint8)
    after = np.zeros(len(exponents) * BLOCK, np.float32)
    after[: step.dim] = model
    blocks = after.reshape(-1, BLOCK)
    moved = np.flatnonzero(exponents)
    scales = scales_of(exponents[moved])[:, None]
    packed = padded_levels(step)
    for start in range(0, len(moved), _ROWS):
        rows = slice(start, start + _ROWS)
        products = unpack_levels(packed[rows], step.bits).reshape(-1, BLOCK)
        products *= scales[rows]
        chosen = moved[rows]
        if chosen[-1] - chosen[0] == len(chosen) - 1:  # Neighbours: no need to gather and scatter.
            blocks[chosen[0] : chosen[-1] + 1] += products
        else:
            blocks[chosen] += products
    if not in_range(after):
        raise WrongStep("it leads to values beyond 2**100")
    return after[: step.dim]
