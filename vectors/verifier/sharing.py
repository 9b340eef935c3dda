"""Shamir's secret sharing over GF(2^31 − 1), nine limbs of 29 bits (7)."""

from collections.abc import Sequence

from vectors.verifier.errors import demand
from vectors.verifier.hashing import KeyStream, little_endian

FIELD = 2**31 - 1
LIMBS = 9
LIMB = 2**29
SHARE = 4 * LIMBS


def limbs_of(secret: bytes) -> list[int]:
    """Cut a secret of 32 bytes into limbs, lowest first."""
    number = int.from_bytes(secret, "little")
    return [number // LIMB**place % LIMB for place in range(LIMBS)]


def coefficient(stream: KeyStream) -> int:
    """Draw the next coefficient: 31 bits, 2^31 − 1 is skipped."""
    while (drawn := stream.integer(4) % 2**31) == FIELD:
        pass
    return drawn


def split(secrets: Sequence[bytes], holders: Sequence[int], threshold: int, seed: bytes) -> dict[int, bytes]:
    """Share secrets: per holder the shares of all secrets, one after the other."""
    stream = KeyStream(seed)
    limbs = [limb for secret in secrets for limb in limbs_of(secret)]
    powers = [[coefficient(stream) for _ in limbs] for _ in range(threshold - 1)]  # x^(t−1) first, down to x^1.
    shares = {}
    for holder in holders:
        values = [0] * len(limbs)
        for coefficients in [*powers, limbs]:
            values = [(value * (holder + 1) + added) % FIELD for value, added in zip(values, coefficients, strict=True)]
        shares[holder] = b"".join(little_endian(value, 4) for value in values)
    return shares


def lagrange_at_zero(holders: Sequence[int]) -> list[int]:
    """Return λ_h of each holder."""
    weights = []
    for own in holders:
        weight = 1
        for other in holders:
            if other != own:
                weight = weight * (other + 1) * pow(other - own, -1, FIELD) % FIELD
        weights.append(weight)
    return weights


def elements(share: bytes) -> list[int]:
    """Read the elements of a share; all must be in the field."""
    values = [int.from_bytes(share[place : place + 4], "little") for place in range(0, len(share), 4)]
    demand(all(value < FIELD for value in values), "InvalidShare", "an element outside the field")
    return values


def combine(holders: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Restore one secret from the shares of t holders."""
    weights = lagrange_at_zero(holders)
    columns = zip(*map(elements, shares), strict=True)
    limbs = [sum(w * value for w, value in zip(weights, column, strict=True)) % FIELD for column in columns]
    secret = sum(limb * LIMB**place for place, limb in enumerate(limbs))
    demand(all(limb < LIMB for limb in limbs) and secret < 2**256, "InvalidShare", "shares that do not fit together")
    return little_endian(secret, 32)
