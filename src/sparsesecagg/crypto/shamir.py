"""Shamir's secret sharing of 16-byte secrets over GF(2^31 − 1), vectorised over shares and secrets.

A secret is cut into five limbs of at most 29 bits; each limb is shared with its own random polynomial. Secrecy is
perfect in any prime field with more elements than holders, so the field is chosen for speed: a product of two elements
fits 64 bits, and 2^31 ≡ 1 makes reduction a shift and an add. Matrix products are left to the floating-point unit,
which is exact on integers below 2^53 and much faster than anything else NumPy offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product as combinations_of

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.crypto.stream import KeyStream

SECRET_SIZE = 16
"""Bytes of a secret that is shared."""

LIMB_BITS = 29
LIMBS = 5  # 5 · 29 = 145 ≥ 128
SHARE_SIZE = 4 * LIMBS
"""Bytes of one share of one secret."""

_LAST_LIMB_BITS = 8 * SECRET_SIZE - (LIMBS - 1) * LIMB_BITS
_LIMB_MASK = (1 << LIMB_BITS) - 1

_TABLE = 1 << 17
"""Differences worked on at a time: 1 MB."""

_FEW = 1 << 8
"""Elements that Python inverts faster than NumPy, which takes sixty steps however few there are."""

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


def split(secrets: Sequence[bytes], holders: NDArray[np.int64], threshold: int, randomness: Secret) -> Elements:
    """Share each 16-byte secret among the holders; any `threshold` shares restore it, fewer say nothing.

    `holders` are distinct user numbers ≥ 0; holder h gets the polynomial's value at h + 1 (never 0, the secret).
    `randomness` is a fresh 32-byte seed for the coefficients. Returns (holders, secrets, LIMBS).
    """
    constants = to_limbs(secrets)
    drawn = random_elements(randomness, (threshold - 1) * constants.size)
    coefficients = np.concatenate([drawn, constants.reshape(-1)]).reshape(threshold, constants.size)
    values = multiply(_falling_powers(holders.astype(np.int64).tobytes(), threshold), coefficients)
    return values.reshape(len(holders), *constants.shape)


def combine(shares: Elements, holders: tuple[int, ...]) -> list[bytes | None]:
    """Restore secrets from the shares of exactly `threshold` holders, the same for all secrets.

    `shares` has shape (secrets, holders, LIMBS), in the order of `holders`. A combination whose limbs do not form a
    16-byte secret (the shares were not of one sharing) gives None.
    """
    # Each product is reduced below 2^32 before summing: fewer than 2^31 holders fit uint64.
    return from_limbs(canonical(reduce(shares * lagrange_at_zero(holders)[None, :, None]).sum(axis=1)))


@lru_cache(maxsize=4096)
def lagrange_at_zero(holders: tuple[int, ...]) -> Elements:
    """Return the Lagrange coefficients at 0 for points h + 1; computed once per set of holders."""
    coefficients: Elements = lagrange_coefficients(np.array([holders], np.int64))[0]
    return coefficients


def lagrange_coefficients(sets: NDArray[np.int64]) -> Elements:
    """Return the Lagrange coefficients at 0 for many sets of holders at once, one set per row.

    The coefficient of point x_i is Π x_j / (x_i · Π_{j ≠ i} (x_j − x_i)), the first product over all points.
    """
    ordered = np.sort(sets, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise ValueError("share indices must differ")
    points = sets.astype(np.uint64) + np.uint64(1)
    count, size = points.shape
    denominators = np.empty_like(points)
    # A table of differences per set: several small ones at a time, or a few rows of a large one.
    set_step = max(1, _TABLE // size**2)
    row_step = max(1, _TABLE // (set_step * size))
    for first in range(0, count, set_step):
        some = points[first : first + set_step]
        for start in range(0, size, row_step):
            rows = some[:, start : start + row_step]
            differences = some[:, None, :] + np.uint64(PRIME) - rows[:, :, None]  # < 2^31 + 2^30
            places = np.arange(rows.shape[1])
            differences[:, places, start + places] = 1  # No factor for the point itself.
            denominators[first : first + set_step, start : start + row_step] = product(differences)
    return canonical(times(product(points)[:, None], inverse(times(denominators, points))))


def encode_shares(shares: Elements) -> bytes:
    """Write elements as little-endian 32-bit numbers."""
    return shares.astype("<u4").tobytes()


def decode_shares(data: bytes | memoryview) -> Elements | None:
    """Read what `encode_shares` wrote, flat; None when an element is not in the field or the length is odd."""
    if len(data) % SHARE_SIZE:
        return None
    elements = np.frombuffer(data, "<u4").astype(np.uint64)
    return elements if not len(elements) or int(elements.max()) < PRIME else None


def random_elements(randomness: Secret, count: int) -> Elements:
    """Return uniform elements: the low 31 bits of 32-bit draws, without the one value that is not in the field."""
    stream = KeyStream(randomness)
    found = np.empty(0, np.uint64)
    while len(found) < count:
        draws = stream.read(4 * (count - len(found))).view("<u4").astype(np.uint64) & np.uint64(PRIME)
        found = np.concatenate([found, draws[draws < PRIME]])
    return found


def to_limbs(secrets: Sequence[bytes]) -> Elements:
    """Cut 16-byte secrets into limbs, lowest first; returns (secrets, LIMBS)."""
    if any(len(secret) != SECRET_SIZE for secret in secrets):
        raise ValueError(f"a secret that is shared has {SECRET_SIZE} bytes")
    numbers = [int.from_bytes(secret, "little") for secret in secrets]
    limbs = [[(number >> shift) & _LIMB_MASK for shift in range(0, LIMBS * LIMB_BITS, LIMB_BITS)] for number in numbers]
    return np.array(limbs, np.uint64)


def from_limbs(limbs: Elements) -> list[bytes | None]:
    """Put secrets together from limbs of shape (secrets, LIMBS); None where they do not form 16 bytes."""
    secrets: list[bytes | None] = []
    for row in limbs.tolist():
        if max(row) > _LIMB_MASK or row[-1] >> _LAST_LIMB_BITS:
            secrets.append(None)
        else:
            number = sum(limb << (LIMB_BITS * place) for place, limb in enumerate(row))
            secrets.append(number.to_bytes(SECRET_SIZE, "little"))
    return secrets


@lru_cache(maxsize=8)
def _falling_powers(holders: bytes, threshold: int) -> Factor:
    """Return the powers threshold − 1 down to 0 of the holders' points; the same for all rounds of a group."""
    points = np.frombuffer(holders, np.int64).astype(np.uint64) + np.uint64(1)
    return left_factor(powers(points, threshold)[:, ::-1])


# Arithmetic modulo 2^31 − 1


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
    """Return 1 / values, < 2^32, as values^(p − 2), Fermat's way: the same steps for all, or one by one if few."""
    if values.size < _FEW:
        found = [pow(value, PRIME - 2, PRIME) for value in values.reshape(-1).tolist()]
        return np.array(found, np.uint64).reshape(values.shape)
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
        rows, some, inner = slice(row, row + down), slice(column, column + across), slice(term, term + _EXACT_TERMS)
        sums[rows, some] += (left[rows, inner] @ reals[inner, some]).astype(np.uint64)
    return canonical(sums)  # 2^11 sums below 2^53 fit uint64.


@lru_cache(maxsize=4)
def _inverse_table(bits: int) -> Elements:
    table = canonical(inverse(np.arange(1 << bits, dtype=np.uint64)))
    table.flags.writeable = False
    return table
