"""Words as plain integers."""

from __future__ import annotations

from collections.abc import Iterable

MODULI: dict[int, int] = {**{bits: 2**bits for bits in range(4, 32)}, 32: 2**32 - 5}


def residue(value: int, bits: int) -> int:
    """φ: the canonical word of a signed integer."""
    return value % MODULI[bits]


def signed(word: int, bits: int) -> int:
    """φ⁻¹: the signed integer nearest to zero; the one tie of an even modulus goes to the negative side."""
    modulus = MODULI[bits]
    return word if word <= (modulus - 1) // 2 else word - modulus


def packed(words: Iterable[int], bits: int) -> bytes:
    """Write the words one behind the other, lowest bit first, as one long number."""
    number, length = 0, 0
    for word in words:
        number |= word << length
        length += bits
    return number.to_bytes((length + 7) // 8, "little")


def unpacked(data: bytes, count: int, bits: int) -> list[int]:
    """Read what `packed` wrote."""
    number = int.from_bytes(data, "little")
    return [(number >> (bits * place)) & ((1 << bits) - 1) for place in range(count)]
