"""Locations: the positions that a user sends, as a bitmap or as Rice-coded gaps (11)."""

from collections.abc import Sequence

from vectors.verifier.errors import demand
from vectors.verifier.hashing import little_endian

HEADER = 10  # Code, k, count and unary size.


def rice_parameter(count: int, total: int) -> int:
    """Return the k that the sender takes for `count` gaps that add up to `total`."""

    def cost(k: int) -> int:
        return count * (k + 1) + (max(0, total - count * ((1 << k) - 1) // 2) >> k)

    return min(range(32), key=cost) if count else 0


def bytes_of_bits(bits: int, count: int) -> bytes:
    """Write bits into bytes, from the lowest bit."""
    return little_endian(bits, (count + 7) // 8)


def encode_gaps(positions: Sequence[int]) -> bytes:
    """Code positions as gaps."""
    gaps = [position - before - 1 for before, position in zip([-1, *positions], positions, strict=False)]
    k = rice_parameter(len(gaps), sum(gaps))
    unary = length = 0
    for gap in gaps:
        unary |= 1 << length + (gap >> k)
        length += (gap >> k) + 1
    low = sum((gap & (1 << k) - 1) << k * place for place, gap in enumerate(gaps))
    unary_bytes = bytes_of_bits(unary, length)
    header = bytes([1, k]) + little_endian(len(gaps), 4) + little_endian(len(unary_bytes), 4)
    return header + unary_bytes + bytes_of_bits(low, k * len(gaps))


def encode(positions: Sequence[int], dim: int) -> bytes:
    """Code positions in the shorter code; the bitmap if both are as long."""
    gaps = encode_gaps(positions)
    if len(gaps) < 1 + (dim + 7) // 8:
        return gaps
    return b"\0" + bytes_of_bits(sum(1 << position for position in positions), dim)


def decode(data: bytes, dim: int) -> list[int]:
    """Read positions in either code."""
    demand(data[:1] in (b"\0", b"\1"), "MalformedMessage", "locations in no known code")
    demand(len(data) <= 1 + (dim + 7) // 8, "MalformedMessage", "more bytes than a bitmap takes")
    if data[0] == 0:
        demand(len(data) == 1 + (dim + 7) // 8, "MalformedMessage", "a bitmap of another length")
        bits = int.from_bytes(data[1:], "little")
        demand(bits < 1 << dim, "MalformedMessage", "a position of d or more")
        return [position for position in range(dim) if bits >> position & 1]
    return decode_gaps(data, dim)


def decode_gaps(data: bytes, dim: int) -> list[int]:
    """Read positions that are coded as gaps."""
    demand(len(data) >= HEADER and data[1] <= 32, "MalformedMessage", "no header of gaps")
    k, count = data[1], int.from_bytes(data[2:6], "little")
    size = int.from_bytes(data[6:HEADER], "little")
    demand(len(data) == HEADER + size + (count * k + 7) // 8, "MalformedMessage", "gaps of another length")
    unary = int.from_bytes(data[HEADER : HEADER + size], "little")
    low = int.from_bytes(data[HEADER + size :], "little")
    demand(unary.bit_count() == count, "MalformedMessage", "another number of gaps")
    demand(size == (unary.bit_length() + 7) // 8, "MalformedMessage", "a unary part longer than its last gap needs")
    demand(low < 1 << k * count, "MalformedMessage", "low bits whose padding is not zero")
    ends = [place for place in range(unary.bit_length()) if unary >> place & 1]
    positions = []
    position = before = -1
    for index, end in enumerate(ends):
        position += (end - before - 1 << k) + (low >> k * index & (1 << k) - 1) + 1
        before = end
        positions.append(position)
    demand(position < dim, "MalformedMessage", "a position of d or more")
    return positions
