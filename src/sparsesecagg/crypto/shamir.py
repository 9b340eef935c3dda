"""Shamir's secret sharing over GF(2^31 − 1), vectorised over shares and secrets.

A 32-byte secret is cut into nine limbs of 29 bits; each limb is shared with its own random polynomial. Secrecy is
perfect in any prime field with more elements than holders, so the field is chosen for speed: a product of two
elements fits 64 bits, and 2^31 ≡ 1 makes reduction a shift and an add.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SECRET_SIZE, Secret
from sparsesecagg.crypto.stream import KeyStream

PRIME = 2**31 - 1
LIMB_BITS = 29
LIMBS = 9  # 9 · 29 = 261 ≥ 256
SHARE_SIZE = 4 * LIMBS
"""Bytes of one share of one 32-byte secret."""

_TABLE = 1 << 17
"""Differences worked on at a time: 1 MB."""

Elements = NDArray[np.uint64]
"""Field elements in [0, PRIME)."""


def split(secrets: Sequence[bytes], holders: NDArray[np.int64], threshold: int, randomness: Secret) -> Elements:
    """Share each 32-byte secret among the holders; any `threshold` shares restore it, fewer say nothing.

    `holders` are distinct user numbers ≥ 0; holder h gets the polynomial's value at h + 1 (never 0, the secret).
    `randomness` is a fresh 32-byte seed for the coefficients. Returns (holders, secrets, LIMBS).
    """
    constants = np.stack([_to_limbs(secret) for secret in secrets])
    coefficients = _random_elements(randomness, (threshold - 1) * constants.size).reshape(
        threshold - 1, *constants.shape
    )
    points = (holders.astype(np.uint64) + 1)[:, None, None]
    # Horner: values < 2^33 and points < 2^30, so the product fits uint64.
    values = np.zeros((len(holders), *constants.shape), np.uint64)
    for coefficient in coefficients:
        values += coefficient
        values *= points
        values = _reduce(values)
    values += constants
    return _canonical(values)


def combine(shares: Elements, holders: tuple[int, ...]) -> list[bytes | None]:
    """Restore secrets from the shares of exactly `threshold` holders, the same for all secrets.

    `shares` has shape (secrets, holders, LIMBS), in the order of `holders`. A combination whose limbs do not form a
    32-byte secret (the shares were not of one sharing) gives None.
    """
    return _weighted_sum(shares, lagrange_at_zero(holders)[None])


def combine_each(shares: Elements, holders: NDArray[np.int64]) -> list[bytes | None]:
    """Restore secrets as `combine` does, where each has holders of its own: row i of `holders` for secret i."""
    sets, which = np.unique(holders, axis=0, return_inverse=True)
    return _weighted_sum(shares, lagrange_coefficients(sets)[which.reshape(-1)])


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
            denominators[first : first + set_step, start : start + row_step] = _product(differences)
    return _canonical(_times(_product(points)[:, None], _inverse(_times(denominators, points))))


def encode_shares(shares: Elements) -> bytes:
    """Write elements as little-endian 32-bit numbers."""
    return shares.astype("<u4").tobytes()


def decode_shares(data: bytes | memoryview) -> Elements | None:
    """Read what `encode_shares` wrote, flat; None when an element is not in the field or the length is odd."""
    if len(data) % SHARE_SIZE:
        return None
    elements = np.frombuffer(data, "<u4").astype(np.uint64)
    return elements if not len(elements) or int(elements.max()) < PRIME else None


def _reduce(values: Elements) -> Elements:
    """Bring values below 2^64 under 2^33 + 2^31 (not canonical)."""
    return (values & np.uint64(PRIME)) + (values >> np.uint64(31))


def _canonical(values: Elements) -> Elements:
    values = _reduce(_reduce(_reduce(values)))  # 2^64 → 2^34 → 2^31 + 8 → ≤ 2^31
    return np.where(values >= PRIME, values - np.uint64(PRIME), values)


def _times(left: Elements, right: Elements) -> Elements:
    """Multiply factors < 2^32; the result is < 2^31 + 8, ready for the next product."""
    return _reduce(_reduce(left * right))


def _product(factors: Elements) -> Elements:
    """Return the product along the last axis, by halving it: few operations on long arrays."""
    while factors.shape[-1] > 1:
        half = factors.shape[-1] // 2
        paired = _times(factors[..., :half], factors[..., half : 2 * half])
        factors = np.concatenate([paired, factors[..., 2 * half :]], axis=-1)
    product: Elements = factors[..., 0]
    return product


def _inverse(values: Elements) -> Elements:
    """Return 1 / values as values^(p − 2), Fermat's way: the same steps for all."""
    result, power, exponent = np.ones_like(values), values, PRIME - 2
    while exponent:
        if exponent & 1:
            result = _times(result, power)
        power = _times(power, power)
        exponent >>= 1
    return result


def _weighted_sum(shares: Elements, weights: Elements) -> list[bytes | None]:
    # Each product is reduced below 2^32 before summing: fewer than 2^31 holders fit uint64.
    limbs = _canonical(_reduce(shares * weights[:, :, None]).sum(axis=1))
    return [_from_limbs(row) for row in limbs]


def _random_elements(randomness: Secret, count: int) -> Elements:
    stream = KeyStream(randomness)
    found = np.empty(0, np.uint64)
    while len(found) < count:
        draws = stream.read(4 * (count - len(found))).view("<u4").astype(np.uint64) & np.uint64(PRIME)
        found = np.concatenate([found, draws[draws < PRIME]])
    return found


def _to_limbs(secret: bytes) -> Elements:
    number = int.from_bytes(secret, "little")
    return np.array([(number >> (LIMB_BITS * i)) & ((1 << LIMB_BITS) - 1) for i in range(LIMBS)], np.uint64)


def _from_limbs(limbs: Elements) -> bytes | None:
    if int(limbs.max()) >> LIMB_BITS:
        return None
    number = sum(int(limb) << (LIMB_BITS * i) for i, limb in enumerate(limbs))
    return number.to_bytes(SECRET_SIZE, "little") if number < 1 << (8 * SECRET_SIZE) else None
