"""HKDF-SHA256 (RFC 5869) and the one-step function of NIST SP 800-56C, from hmac alone."""

from __future__ import annotations

import hashlib
import hmac


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """Extract, then expand."""
    key = hmac.digest(salt or bytes(32), secret, hashlib.sha256)
    block, output = b"", b""
    counter = 1
    while len(output) < length:
        block = hmac.digest(key, block + info + bytes([counter]), hashlib.sha256)
        output += block
        counter += 1
    return output[:length]


def one_step(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return the first block."""
    return hmac.digest(salt, b"\0\0\0\1" + secret + info, hashlib.sha256)
