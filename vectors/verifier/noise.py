"""Skellam noise (10): its distribution by the power series of the Bessel functions, in integers."""

from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from math import ceil, sqrt

from vectors.verifier.hashing import KeyStream

BITS = 400
TOLERANCE = 2**20  # Of probabilities in units of 2^−128: a draw is off by less than 2^−108.


def bessel(order: int, variance: Fraction) -> int:
    """Return I_order(v) in units of 2^−BITS: the sum of (v/2)^(2m + order) / (m!·(m + order)!)."""
    half = variance / 2
    term = 1 << BITS
    for k in range(1, order + 1):
        term = term * half.numerator // (half.denominator * k)
    total, m = 0, 0
    while term:
        total, m = total + term, m + 1
        term = term * half.numerator**2 // (half.denominator**2 * m * (m + order))
    return total


@lru_cache
def distribution(variance: float) -> dict[int, int]:
    """Return the probabilities of at most k, in units of 2^−128, from far below zero to far above."""
    far = ceil(14 * sqrt(variance)) + 60
    weights = [bessel(k, Fraction(variance)) for k in range(far + 1)]
    total = weights[0] + 2 * sum(weights[1:])
    found, below = {}, 0
    for k in range(-far, far):
        below += weights[abs(k)]
        found[k] = (below << 128) // total
    return found


def draws(variance: float, seed: bytes, count: int) -> list[int]:
    """Return the first draws of a stream: each takes 8 bytes, the leading half of a number of 128 bits."""
    found = distribution(variance)
    smallest, leading = min(found), [each >> 64 for each in found.values()]
    stream = KeyStream(seed)
    return [smallest + bisect_right(leading, stream.integer(8)) for _ in range(count)]
