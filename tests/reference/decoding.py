"""False shares by exhaustion: every set of as many holders as are needed has its polynomial; the right one fits most.

A polynomial of degree < t that misses at most (n − t)/2 of n values is the only one, so it is found by trying.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from reference.shamir import LIMBS, evaluate, interpolate


def false_values(values: Sequence[int], holders: Sequence[int], threshold: int) -> set[int] | None:
    """Return the places of at most (n − t)/2 values that are not on one polynomial with the others; None if more."""
    for chosen in combinations(range(len(holders)), threshold):
        polynomial = interpolate([(holders[place] + 1, values[place]) for place in chosen])
        off = {place for place, holder in enumerate(holders) if evaluate(polynomial, holder + 1) != values[place]}
        if len(off) <= (len(holders) - threshold) // 2:
            return off
    return None


def false_shares(shares: Sequence[Sequence[int]], holders: Sequence[int], threshold: int) -> set[int] | None:
    """Return the places of the false shares of one secret, by holder and limb; None if a limb has too many."""
    found = [false_values([share[limb] for share in shares], holders, threshold) for limb in range(LIMBS)]
    return None if any(off is None for off in found) else set().union(*(off for off in found if off is not None))
