"""The pattern of `pairwise`, by its gaps (11)."""

from bisect import bisect_left
from functools import lru_cache

from vectors.verifier.hashing import KeyStream

ONE = 2**64


def probability(alpha_q32: int, degree: int) -> int:
    """Return P, the probability of a one in units of 2^−64."""
    return alpha_q32 * 2**32 // degree


@lru_cache
def gap_table(p: int) -> tuple[int, ...]:
    """Return T[0] … T[size−1]."""
    none = ONE
    table = []
    for _ in range(min(4 * ONE // p + 1, 65536)):
        none = none * (ONE - p) // ONE
        table.append(ONE - none - 1)
    return tuple(table)


def sample_gaps(p: int, pattern_seed: bytes, dim: int) -> list[int]:
    """Return the coordinates where b_ij is 1."""
    table = gap_table(p)
    stream = KeyStream(pattern_seed)
    positions = []
    passed = 0
    while passed < dim:
        gap = bisect_left(table, stream.integer(8))  # How many entries are smaller: the table never falls.
        if gap == len(table):
            passed += len(table)
        else:
            passed += gap + 1
            if passed <= dim:
                positions.append(passed - 1)
    return positions
