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
    """Restore secrets from the shares of exactly `threshold` holders.

    `shares` has shape (secrets, holders, LIMBS), in the order of `holders`. A combination whose limbs do not form a
    32-byte secret (the shares were not of one sharing) gives None.
    """
    weights = lagrange_at_zero(holders)[None, :, None]
    # Each product is reduced below 2^32 before summing: fewer than 2^31 holders fit uint64.
    limbs = _canonical(_reduce(shares * weights).sum(axis=1))
    return [_from_limbs(row) for row in limbs]


@lru_cache(maxsize=4096)
def lagrange_at_zero(holders: tuple[int, ...]) -> Elements:
    """Return the Lagrange coefficients at 0 for points h + 1; computed once per set of holders."""
    if len(set(holders)) != len(holders):
        raise ValueError("share indices must differ")
    points = np.array(holders, np.uint64) + 1
    numerators = np.ones(len(points), np.uint64)
    denominators = np.ones(len(points), np.uint64)
    for index, point in enumerate(points):
        factor = np.full(len(points), point, np.uint64)
        difference = (point + np.uint64(PRIME) - points) % np.uint64(PRIME)
        factor[index] = difference[index] = 1
        # Reduced twice: < 2^31 + 8, so that the next product stays below 2^63.
        numerators = _reduce(_reduce(numerators * factor))
        denominators = _reduce(_reduce(denominators * difference))
    numerators, denominators = _canonical(numerators), _canonical(denominators)
    inverses = np.array([pow(int(value), -1, PRIME) for value in denominators], np.uint64)
    return _canonical(_reduce(numerators * inverses))


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
