"""Bernoulli patterns: the gap walk one draw at a time, and the sampler that the paper writes down."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache

import numpy as np
from numpy.typing import NDArray

from reference.stream import key_stream

ONE = 2**64


@cache
def cumulative(probability: int) -> list[int]:
    """Entry k is the largest draw that gives a gap of at most k."""
    size = min(4 * ONE // probability + 1, 2**16)
    entries, none = [], ONE
    for _ in range(size):
        none = none * (ONE - probability) // ONE
        entries.append(ONE - none - 1)
    return entries


def positions(seed: bytes, dim: int, probability: int) -> list[int]:
    """Walk from one to one; a draw beyond the table skips as many coordinates as the table has entries."""
    table = cumulative(probability)
    found: list[int] = []
    here, used, data = 0, 0, b""
    while here < dim:
        if used == len(data):
            data = key_stream(seed, 2 * len(data) + 800)
        gap = bisect_left(table, int.from_bytes(data[used : used + 8], "little"))
        used += 8
        here += gap
        if gap < len(table):
            if here < dim:
                found.append(here)
            here += 1
    return found


def literal(rng: np.random.Generator, dim: int, probability: int) -> NDArray[np.int64]:
    """One 64-bit draw per coordinate, compared with the probability."""
    draws = rng.integers(0, ONE, dim, np.uint64)
    return np.flatnonzero(draws < np.uint64(probability))
