"""One step on the wire, and what it does to a model.

    version 1 │ bits 1 │ dim 8 │ from 8 │ to 8 │ digest before 8 │ digest after 32 │ exponents │ levels

Numbers are little-endian. One exponent byte per block of 512 coordinates (the last block may be shorter), then the
levels of all blocks whose exponent is not 0, packed. `from` and `to` number the models, and the digests tell them
apart: a step is applied to the one model it was made for, and must lead to the one it was made to lead to.

There is one encoding of every step: unused codes, padding that is not zero and blocks of zeros that are not marked as
empty are refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from sparsesecagg.downlink.blocks import (
    BLOCK,
    EMPTY,
    LARGEST_EXPONENT,
    STEP_BITS,
    Bytes,
    block_count,
    has_only_levels,
    scales_of,
    unpack_levels,
)
from sparsesecagg.downlink.vector import Vector, in_range
from sparsesecagg.errors import MalformedMessage, WrongStep

VERSION = 1
_HEADER = struct.Struct("<BBQQQ8s32s")
_ROWS = 128
"""Blocks handled at a time: 256 kB of float32, which stays in the processor's cache."""


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
        return b"".join((header, self.exponents, self.levels))

    @staticmethod
    def decode(data: bytes | memoryview) -> ModelStep:
        """Read a step; refuse whatever `encode` would not have written. Needs no more memory than `data`."""
        if len(data) < _HEADER.size:
            raise MalformedMessage(f"a step has {_HEADER.size} bytes or more, got {len(data)}")
        version, bits, dim, before, after, digest_before, digest_after = _HEADER.unpack_from(data)
        if version != VERSION:
            raise MalformedMessage(f"steps have version {VERSION}, got {version}")
        if bits not in STEP_BITS:
            raise MalformedMessage(f"a step has 2, 4 or 8 bits per coordinate, got {bits}")
        if after <= before:
            raise MalformedMessage(f"a step leads to a later model, got {before} to {after}")
        body = bytes(data[_HEADER.size :])
        blocks = block_count(dim)
        if not dim or blocks > len(body):
            raise MalformedMessage(f"{dim} coordinates do not fit a step of {len(data)} bytes")
        step = ModelStep(bits, dim, before, after, digest_before, digest_after, body[:blocks], body[blocks:])
        step._check_body()
        return step

    @property
    def size(self) -> int:
        """The bytes that the step takes on the wire."""
        return _HEADER.size + len(self.exponents) + len(self.levels)

    def _check_body(self) -> None:
        exponents = np.frombuffer(self.exponents, np.uint8)
        if exponents.max() > LARGEST_EXPONENT:
            raise MalformedMessage(f"an exponent is {exponents.max()}, the largest is {LARGEST_EXPONENT}")
        size = levels_size(exponents, self.dim, self.bits)
        if len(self.levels) != size:
            raise MalformedMessage(f"the levels of this step take {size} bytes, not {len(self.levels)}")
        if not has_only_levels(self.levels, self.bits):
            raise MalformedMessage("a code is not a level")
        cut = self.dim % BLOCK if exponents[-1] != EMPTY else 0
        if (spare := cut * self.bits % 8) and self.levels[-1] >> spare:
            raise MalformedMessage("the padding of the last byte is not zero")
        if not padded_levels(self).any(axis=1).all():
            raise MalformedMessage("a block of zeros is not marked as empty")


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
