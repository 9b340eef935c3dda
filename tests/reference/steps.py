"""A slow twin of the way down: reads a step bit by bit and adds it coordinate by coordinate, in plain Python.

Python's floats have 53 bits. A sum of two float32 that is rounded to 53 bits and then to 24 equals the one that is
rounded once (53 ≥ 2 · 24 + 2), so `struct` does float32 arithmetic.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence

HEADER = 1 + 1 + 8 + 8 + 8 + 8 + 32


def single(value: float) -> float:
    """Return the nearest float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def digest(model: Sequence[float]) -> bytes:
    """Return SHA-256 of the values as little-endian float32."""
    return hashlib.sha256(struct.pack(f"<{len(model)}f", *model)).digest()


def level(code: int, bits: int) -> int:
    """Return the integer that a two's complement code of `bits` bits stands for."""
    return code - (1 << bits) if code >= 1 << (bits - 1) else code


def stepped(model: Sequence[float], step: bytes) -> list[float]:
    """Return the model after an encoded step."""
    bits, dim = step[1], int.from_bytes(step[2:10], "little")
    assert dim == len(model)
    blocks = (dim + 511) // 512
    body = zlib.decompress(step[HEADER:], -15)
    exponents, codes = body[:blocks], int.from_bytes(body[blocks:], "little")
    result = list(model)
    for block, exponent in enumerate(exponents):
        if exponent == 0:
            continue
        for place in range(512 * block, min(512 * (block + 1), dim)):
            code = codes & ((1 << bits) - 1)
            codes >>= bits
            result[place] = single(model[place] + level(code, bits) * 2.0 ** (exponent - 127))
    assert codes == 0
    return result
