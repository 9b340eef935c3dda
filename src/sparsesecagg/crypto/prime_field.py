"""Arithmetic in GF(2^31 − 1), vectorised: the field of the secret shares.

A product of two elements fits 64 bits, and 2^31 ≡ 1 makes reduction a shift and an add. Matrix products are left to
the floating-point unit, which is exact on integers below 2^53 and much faster than anything else NumPy offers.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product as combinations_of

import numpy as np
from numpy.typing import NDArray

PRIME = 2**31 - 1

Elements = NDArray[np.uint64]
"""Field elements in [0, PRIME)."""

Factor = NDArray[np.float64]
"""The left factor of a matrix product, prepared by `left_factor`."""

_PRIME = np.uint64(PRIME)
_BITS = np.uint64(31)
_PIECES = ((0, 11), (11, 10), (21, 10))
"""Where a right factor is cut: shift and bits of each piece."""

_EXACT_TERMS = 1 << 11
"""Terms that are added up in floating point: each is below 2^31 · 2^11, so the sum stays below 2^53."""

_ALONE = 1 << 18
"""Products per call: so few that OpenBLAS wakes no other threads, which it would have to wait for on a busy machine."""


def reduce(values: Elements) -> Elements:
    """Bring values below 2^64 under 2^33 + 2^31 (not canonical)."""
    return (values & _PRIME) + (values >> _BITS)


def canonical(values: Elements) -> Elements:
    """Return the elements that values below 2^64 stand for."""
    values = reduce(reduce(values))  # 2^64 → 2^34 → 2^31 + 8, less than twice the prime
    # What is below the prime wraps to a huge number when the prime is taken away.
    elements: Elements = np.minimum(values, values - _PRIME)
    return elements


def times(left: Elements, right: Elements) -> Elements:
    """Multiply factors < 2^32; the result is < 2^31 + 8, ready for the next product."""
    return reduce(reduce(left * right))


def product(factors: Elements) -> Elements:
    """Return the product along the last axis, by halving it: few operations on long arrays. The result is < 2^32."""
    while factors.shape[-1] > 1:
        half = factors.shape[-1] // 2
        paired = times(factors[..., :half], factors[..., half : 2 * half])
        factors = np.concatenate([paired, factors[..., 2 * half :]], axis=-1)
    result: Elements = factors[..., 0]
    return result


def inverse(values: Elements) -> Elements:
    """Return 1 / values, < 2^32, as values^(p − 2), Fermat's way: the same steps for all."""
    result, power, exponent = np.ones_like(values), values, PRIME - 2
    while exponent:
        if exponent & 1:
            result = times(result, power)
        power = times(power, power)
        exponent >>= 1
    return result


def inverses_below(bound: int) -> Elements:
    """Return a table whose entry i is 1 / i, for 0 < i < `bound` at least; entry 0 is 0."""
    return _inverse_table(max(1, (bound - 1).bit_length()))


def powers(points: Elements, count: int) -> Elements:
    """Return the powers 0 to count − 1 of each point, of shape (points, count), by doubling."""
    table = np.ones((len(points), max(1, count)), np.uint64)
    if count > 1:
        table[:, 1] = canonical(points)
    known = 2
    while known < count:
        new = min(known, count - known)
        step = times(table[:, known - 1], table[:, 1])[:, None]  # The power `known` itself.
        table[:, known : known + new] = canonical(table[:, :new] * step)
        known += new
    return table[:, :count]


def left_factor(matrix: Elements) -> Factor:
    """Prepare a matrix of shape (rows, terms) for many products: side by side, times 1, 2^11 and 2^21.

    The right factor is cut into pieces of at most 11 bits at the same places, so that one product of floating-point
    matrices, without any carrying over, gives the whole sum.
    """
    return np.concatenate([canonical(matrix << np.uint64(shift)) for shift, _ in _PIECES], axis=1).astype(np.float64)


def multiply(left: Factor, right: Elements) -> Elements:
    """Return the matrix product of what `left_factor` prepared and elements of shape (terms, columns)."""
    terms, columns = right.shape
    short = right.astype(np.uint32)  # Half the memory, twice the speed.
    reals = np.empty((len(_PIECES) * terms, columns))
    for place, (shift, bits) in enumerate(_PIECES):
        reals[place * terms : (place + 1) * terms] = (short >> np.uint32(shift)) & np.uint32((1 << bits) - 1)
    sums = np.zeros((len(left), columns), np.uint64)
    share = _ALONE // max(1, min(len(reals), _EXACT_TERMS))
    down = max(1, min(len(left), share // min(16, max(1, columns))))
    across = max(1, share // down)
    for row, column, term in combinations_of(
        range(0, len(left), down), range(0, columns, across), range(0, len(reals), _EXACT_TERMS)
    ):
        rows, some, terms_here = (
            slice(row, row + down),
            slice(column, column + across),
            slice(term, term + _EXACT_TERMS),
        )
        sums[rows, some] += (left[rows, terms_here] @ reals[terms_here, some]).astype(np.uint64)
    return canonical(sums)  # 2^11 sums below 2^53 fit uint64.


@lru_cache(maxsize=4)
def _inverse_table(bits: int) -> Elements:
    table = canonical(inverse(np.arange(1 << bits, dtype=np.uint64)))
    table.flags.writeable = False
    return table
