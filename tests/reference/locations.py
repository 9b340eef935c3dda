"""Both codes of locations, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence


def bits_to_bytes(bits: Sequence[int]) -> bytes:
    """Pack bits, lowest first, into whole bytes."""
    return sum(bit << place for place, bit in enumerate(bits)).to_bytes((len(bits) + 7) // 8, "little")


def bitmap(positions: Sequence[int], dim: int) -> bytes:
    """Return the bitmap code."""
    chosen = set(positions)
    return b"\x00" + bits_to_bytes([int(place in chosen) for place in range(dim)])


def rice(positions: Sequence[int], k: int) -> bytes:
    """Return the gap code: quotients in unary, each ended by a one, then k low bits per gap."""
    unary: list[int] = []
    low: list[int] = []
    before = -1
    for position in positions:
        gap = position - before - 1
        before = position
        unary += [0] * (gap >> k) + [1]
        low += [(gap >> place) & 1 for place in range(k)]
    unary_bytes = bits_to_bytes(unary)
    header = b"\x01" + bytes([k]) + len(positions).to_bytes(4, "little") + len(unary_bytes).to_bytes(4, "little")
    return header + unary_bytes + bits_to_bytes(low)
