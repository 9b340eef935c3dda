"""Shamir's sharing of 16-byte secrets, one polynomial at a time, over GF(2^31 − 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reference.stream import integers, key_stream

PRIME = 2**31 - 1
LIMBS = 5
LIMB_BITS = 29


def limbs(secret: bytes) -> list[int]:
    """Cut a secret into five numbers of at most 29 bits, lowest first."""
    number = int.from_bytes(secret, "little")
    return [(number >> (LIMB_BITS * place)) % 2**LIMB_BITS for place in range(LIMBS)]


def random_elements(seed: bytes, count: int) -> list[int]:
    """Return the low 31 bits of each 32-bit draw, without the one value that is not in the field."""
    spare = 64  # One draw in 2^31 is skipped.
    draws = (value % 2**31 for value in integers(key_stream(seed, 4 * (count + spare)), 4))
    return [value for value in draws if value < PRIME][:count]


def evaluate(coefficients: Sequence[int], point: int) -> int:
    """Return the polynomial's value; the constant term comes first."""
    return sum(coefficient * pow(point, power, PRIME) for power, coefficient in enumerate(coefficients)) % PRIME


def split(secrets: Sequence[bytes], holders: Sequence[int], threshold: int, seed: bytes) -> list[list[list[int]]]:
    """Return shares by holder, secret and limb. Random elements are used from the highest power down."""
    elements: Iterator[int] = iter(random_elements(seed, (threshold - 1) * len(secrets) * LIMBS))
    rows = [[[next(elements) for _ in range(LIMBS)] for _ in secrets] for _ in range(threshold - 1)]
    constants = [limbs(secret) for secret in secrets]
    polynomials = [
        [[constants[s][k], *(row[s][k] for row in reversed(rows))] for k in range(LIMBS)] for s in range(len(secrets))
    ]
    return [[[evaluate(limb, holder + 1) for limb in secret] for secret in polynomials] for holder in holders]


def interpolate(points: Sequence[tuple[int, int]]) -> list[int]:
    """Return the coefficients, constant first, of the polynomial of degree < len(points) through them."""
    result = [0] * len(points)
    for i, (x_i, y_i) in enumerate(points):
        basis, scale = [1], 1
        for j, (x_j, _) in enumerate(points):
            if j != i:
                shifted, scaled = [0, *basis], [*(-x_j * term for term in basis), 0]
                basis = [(a + b) % PRIME for a, b in zip(shifted, scaled, strict=True)]
                scale = scale * (x_i - x_j) % PRIME
        factor = y_i * pow(scale, -1, PRIME)
        result = [(a + factor * b) % PRIME for a, b in zip(result, basis, strict=True)]
    return result


def combine(shares: Sequence[Sequence[int]], holders: Sequence[int]) -> bytes | None:
    """Restore one secret from shares by holder and limb; None when it is no 16-byte secret."""
    restored = [
        interpolate([(h + 1, share[k]) for h, share in zip(holders, shares, strict=True)])[0] for k in range(LIMBS)
    ]
    if any(limb >= 2**LIMB_BITS for limb in restored):
        return None
    number = sum(limb << (LIMB_BITS * place) for place, limb in enumerate(restored))
    return number.to_bytes(16, "little") if number < 2**128 else None
