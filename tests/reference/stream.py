"""Counter mode by hand: block i is the AES-256 encryption of i as a 16-byte big-endian number."""

from __future__ import annotations

from collections.abc import Iterator

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from reference.words import MODULI

MACHINE_BYTES = {bits: 1 if bits < 9 else 2 if bits < 17 else 4 for bits in range(4, 33)}


def key_stream(key: bytes, size: int) -> bytes:
    """Return the first `size` bytes."""
    blocks = (size + 15) // 16
    counters = b"".join(counter.to_bytes(16, "big") for counter in range(blocks))
    # ECB of distinct counters is what CTR is.
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    return encryptor.update(counters)[:size]


def mask_stream(key: bytes, size: int) -> bytes:
    """Return the first `size` bytes of a mask stream: a key stream without two blocks."""
    return key_stream(key, 32 + size)[32:]


def integers(data: bytes, width: int) -> Iterator[int]:
    """Read little-endian numbers of `width` bytes."""
    for start in range(0, len(data) - width + 1, width):
        yield int.from_bytes(data[start : start + width], "little")


def words(data: bytes, bits: int) -> list[int]:
    """Read all words of a key stream: the low bits of machine words; at 32 bits, values ≥ q are skipped."""
    machine_words = integers(data, MACHINE_BYTES[bits])
    if bits == 32:
        return [value for value in machine_words if value < MODULI[32]]
    return [value % MODULI[bits] for value in machine_words]
