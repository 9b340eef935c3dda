"""Reals to small integers, one power of two per block of 512; and these integers on the wire.

Levels are symmetric around 0 and 0 is one of them (−127 … 127, −7 … 7 or −1 … 1), so a coordinate that should not move
does not. The scale of a block is the power of two with the smallest squared error among a few below the one that fits
the largest magnitude: what exceeds the range is cut off, and the caller keeps the difference for the next step. Which
scale is chosen need not be the same on every machine, since it travels; what follows from it is exact.

A scale travels as one byte, the exponent field of a float32: byte b stands for 2^(b − 127), 0 for a block in which
nothing changes and which has no levels on the wire.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.downlink.vector import Vector
from sparsesecagg.errors import InvalidInput

BLOCK = 512
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


def require_bits(bits: int) -> int:
    """Return `bits` if a coordinate may have that many."""
    if bits not in STEP_BITS:
        raise InvalidInput("bits", f"must be 2, 4 or 8, got {bits}")
    return bits


def largest_level(bits: int) -> int:
    """Return the largest integer that a coordinate may carry."""
    return (1 << (bits - 1)) - 1


def block_count(dim: int) -> int:
    """Return how many blocks a model has; the last one may be shorter."""
    return -(-dim // BLOCK)


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


def has_only_levels(packed: bytes, bits: int) -> bool:
    """Say whether every code is a level: −2^(bits − 1) is none."""
    return not packed.translate(None, _VALID[bits])


def _table(bits: int) -> Vector:
    """Return the 8 / bits levels of each byte, shape (256, 8 / bits)."""
    codes = np.arange(256)[:, None] >> np.arange(0, 8, bits) & (1 << bits) - 1
    return np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes).astype(np.float32)


_TABLES = {bits: _table(bits) for bits in STEP_BITS}
_VALID = {
    bits: bytes(np.flatnonzero((np.abs(table) <= largest_level(bits)).all(axis=1)).tolist())
    for bits, table in _TABLES.items()
}
