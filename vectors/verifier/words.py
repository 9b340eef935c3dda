"""Words, packing, mask streams (9), quantisation and digits (10)."""

from collections.abc import Sequence

from vectors.verifier.errors import demand
from vectors.verifier.hashing import KeyStream, little_endian

WORD_SIZES = range(4, 33)


def modulus(bits: int) -> int:
    """Return q."""
    return 2**32 - 5 if bits == 32 else 2**bits


def largest(bits: int) -> int:
    """Return the largest signed integer."""
    return (modulus(bits) - 1) // 2


def signed(word: int, bits: int) -> int:
    """Read a word as a signed integer."""
    return word if word <= largest(bits) else word - modulus(bits)


def packed_size(count: int, bits: int) -> int:
    """Return ⌈count·b/8⌉."""
    return (count * bits + 7) // 8


def pack(words: Sequence[int], bits: int) -> bytes:
    """Write words one after the other, lowest bit first."""
    return little_endian(sum(word << bits * place for place, word in enumerate(words)), packed_size(len(words), bits))


def unpack(data: bytes, count: int, bits: int) -> list[int]:
    """Read packed words; refuse another length, padding and words outside the field."""
    demand(len(data) == packed_size(count, bits), "MalformedMessage", "packed words of another length")
    number = int.from_bytes(data, "little")
    demand(number < 1 << count * bits, "MalformedMessage", "padding that is not zero")
    words = [number >> bits * place & (1 << bits) - 1 for place in range(count)]
    demand(all(word < modulus(bits) for word in words), "MalformedMessage", "a word of q or more")
    return words


class MaskStream:
    """A key stream without its first 32 bytes, read as words."""

    def __init__(self, seed: bytes, bits: int) -> None:
        self.stream = KeyStream(seed)
        self.stream.integer(32)
        self.bits = bits
        self.size = 1 if bits <= 8 else 2 if bits <= 16 else 4

    def word(self) -> int:
        """Read the next word."""
        drawn = self.stream.integer(self.size)
        while self.bits == 32 and drawn >= modulus(32):
            drawn = self.stream.integer(self.size)
        return drawn % modulus(self.bits)


def limit(bits: int, contributors: int) -> int:
    """Return the largest magnitude of one contribution."""
    found = largest(bits) // contributors
    demand(found >= 1, "InvalidInput", "words too short for the sum", "modulus_bits")
    return found


def digit_bits(bits: int, contributors: int) -> int:
    """Return the largest e with n·(2^e − 1) < q."""
    e = 0
    while contributors * (2 ** (e + 1) - 1) < modulus(bits):
        e += 1
    demand(e >= 1, "InvalidInput", "words too short for the digits", "modulus_bits")
    return e


def digit_count(maximum: int, e: int) -> int:
    """Return how many digits an integer with this maximum has."""
    return (maximum.bit_length() + e - 1) // e


def digits_of(value: int, count: int, e: int) -> list[int]:
    """Write an integer as digits of e bits, least significant first."""
    return [value >> e * place & 2**e - 1 for place in range(count)]


def from_digits(digits: Sequence[int], e: int) -> int:
    """Read summed digits: Σ digit_m · 2^(e·m)."""
    return sum(digit << e * place for place, digit in enumerate(digits))
