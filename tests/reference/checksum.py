"""Poly1305 (RFC 8439, section 2.5) with Python's own integers."""

from __future__ import annotations

PRIME = 2**130 - 5
CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF


def poly1305(key: bytes, data: bytes) -> bytes:
    """Return the 16-byte tag: blocks with a one behind them are coefficients, r the point, s is added at the end."""
    r, s = (int.from_bytes(half, "little") for half in (key[:16], key[16:]))
    blocks = [int.from_bytes(data[start : start + 16] + b"\x01", "little") for start in range(0, len(data), 16)]
    powers = range(len(blocks), 0, -1)
    value = sum(block * pow(r & CLAMP, power, PRIME) for block, power in zip(blocks, powers, strict=True)) % PRIME
    return ((value + s) % 2**128).to_bytes(16, "little")
