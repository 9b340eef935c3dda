"""Slices as they are described: fractions, blocks and offsets one at a time."""

from __future__ import annotations

from fractions import Fraction

from reference.kdf import hkdf
from reference.stream import integers, key_stream


def block_of(alpha: Fraction) -> tuple[int, int]:
    """Return a and the smallest L for which a/L differs from α by at most 1 % of it."""
    length = 1
    while True:
        part = min(range(1, length + 1), key=lambda a: abs(Fraction(a, length) - alpha))
        if abs(Fraction(part, length) - alpha) <= alpha / 100:
            return part, length
        length += 1


def coordinates(seed: bytes, dim: int, part: int, length: int, shift: int) -> list[int]:
    """Return a slice: of block b those at (h(b) + shift + j) mod L, j < a, as far as there are any."""
    key = hkdf(seed, b"", b"sparsesecagg/v3/slices/", 32)
    draws = integers(key_stream(key, 4 * -(-dim // length)), 4)
    found = set()
    for block, draw in enumerate(draws):
        offset = draw * length // 2**32
        found |= {block * length + (offset + shift + j) % length for j in range(part)}
    return sorted(each for each in found if each < dim)


def shift(group: int, round_number: int, slices: int, part: int, length: int) -> int:
    """Return where a group's slice begins behind the offsets."""
    return group % slices * length // slices + part * round_number
