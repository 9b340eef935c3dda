"""Shamir's secret sharing over GF(2^31 − 1), five limbs of 29 bits (8)."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from vectors.verifier.errors import Refused, demand
from vectors.verifier.hashing import KeyStream, little_endian

FIELD = 2**31 - 1
LIMBS = 5
SECRET = 16
LIMB = 2**29
SHARE = 4 * LIMBS


def limbs_of(secret: bytes) -> list[int]:
    """Cut a secret of 16 bytes into limbs, lowest first."""
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
    demand(all(limb < LIMB for limb in limbs) and secret < 2**128, "InvalidShare", "shares that do not fit together")
    return little_endian(secret, SECRET)


def at(points: Sequence[int], values: Sequence[int], place: int) -> int:
    """Return the value at a place of the polynomial through some points, by Lagrange's formula."""
    total = 0
    for own, value in zip(points, values, strict=True):
        term = value
        for other in points:
            if other != own:
                term = term * (place - other) * pow(own - other, -1, FIELD) % FIELD
        total += term
    return total % FIELD


def corrected_limb(shares: Mapping[int, int], threshold: int) -> tuple[int, set[int]]:
    """Return a limb and the holders whose values are false: at most half of those to spare are, so one fits the rest.

    All subsets are tried, the plainest way to say what a decoder must find.
    """
    most = (len(shares) - threshold) // 2
    for chosen in combinations(sorted(shares), threshold):
        points, values = [holder + 1 for holder in chosen], [shares[holder] for holder in chosen]
        false = {holder for holder, value in shares.items() if at(points, values, holder + 1) != value}
        if len(false) <= most:
            return at(points, values, 0), false
    raise Refused("InvalidShare", "too many false shares")


def restore(shares: Mapping[int, bytes], threshold: int) -> tuple[bytes, set[int]]:
    """Restore a secret from all shares there are; return it and whose shares are false in any limb."""
    demand(len(shares) >= threshold, "InvalidShare", "too few shares")
    values = {holder: elements(share) for holder, share in shares.items()}
    limbs, false = [], set()
    for place in range(LIMBS):
        limb, liars = corrected_limb({holder: row[place] for holder, row in values.items()}, threshold)
        limbs.append(limb)
        false |= liars
    secret = sum(limb * LIMB**place for place, limb in enumerate(limbs))
    demand(all(limb < LIMB for limb in limbs) and secret < 2**128, "InvalidShare", "shares that do not fit together")
    return little_endian(secret, SECRET), false
