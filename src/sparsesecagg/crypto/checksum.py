"""Checksums against accidents on the way: Poly1305 under a key that everybody knows.

The key is public, so this is not an authenticator: an attacker can change bytes and make the checksum fit. What it
needs to be is fast, because it runs over every upload on both sides, and blind to no kind of accident. Poly1305 reads
the bytes as a polynomial modulo 2^130 − 5 and evaluates it at a fixed point that has nothing to do with them; SHA-256
takes four times as long, and a CRC of 32 bits twice.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.poly1305 import Poly1305

from sparsesecagg.crypto.kdf import digest

CHECKSUM_SIZE = 8

_KEY = digest("message")


def checksum(*pieces: bytes | memoryview) -> bytes:
    """Return the checksum of the pieces as they follow one another, without joining them."""
    state = Poly1305(_KEY)
    for piece in pieces:
        state.update(piece)
    return state.finalize()[:CHECKSUM_SIZE]
