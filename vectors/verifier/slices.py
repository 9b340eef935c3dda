"""Slices: which coordinates a group sends in a round (10)."""

from functools import lru_cache

from vectors.verifier.errors import Refused
from vectors.verifier.hashing import KeyStream, derive


@lru_cache
def block_of(alpha_q32: int) -> tuple[int, int]:
    """Return (a, L): the smallest L for which some a/L is within one hundredth of α."""
    for size in range(1, 2**20 + 1):
        part = (2 * alpha_q32 * size + 2**32) // 2**33  # α·L to the nearest, halves up.
        if part > 0 and 100 * abs(part * 2**32 - alpha_q32 * size) <= alpha_q32 * size:
            return part, size
    raise Refused("InvalidInput", "too small a part", "alpha")


def coordinates(alpha_q32: int, dim: int, slices: int, seed: bytes, group: int, round_number: int) -> list[int]:
    """Return the coordinates that a group sends, increasing."""
    part, size = block_of(alpha_q32)
    shift = (group % slices) * size // slices + part * round_number
    stream = KeyStream(derive(seed, "slices", b""))
    sent = []
    for start in range(0, dim, size):
        offset = stream.integer(4) * size >> 32
        sent += sorted(start + (offset + shift + j) % size for j in range(part))
    return [coordinate for coordinate in sent if coordinate < dim]
