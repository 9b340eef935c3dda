"""Digests, derived keys, key streams (2) and sets of users (1)."""

import hashlib
import hmac
from collections.abc import Iterable

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vectors.verifier.errors import demand

PREFIX = b"sparsesecagg/v3/"


def little_endian(number: int, size: int) -> bytes:
    """LE4(x), LE8(x), … of the page."""
    return number.to_bytes(size, "little")


def digest(label: str, *parts: bytes) -> bytes:
    """Hash the parts, each behind its length."""
    pieces = (PREFIX + label.encode("ascii"), *parts)
    return hashlib.sha256(b"".join(little_endian(len(piece), 8) + piece for piece in pieces)).digest()


def derive(secret: bytes, label: str, context: bytes, names: bytes = b"", length: int = 32) -> bytes:
    """Derive a key from a secret: HKDF with the context as salt."""
    info = PREFIX + label.encode("ascii") + b"/" + names
    return HKDF(SHA256(), length, salt=context, info=info).derive(secret)


def one_step(secret: bytes, label: str, context: bytes, names: bytes) -> bytes:
    """Derive a key from a secret in one step."""
    return hmac.digest(context, b"\0\0\0\1" + secret + PREFIX + label.encode("ascii") + b"/" + names, "sha256")


def expand(key: bytes, label: str) -> bytes:
    """Derive two keys from a derived key."""
    return hashlib.sha512(b"\0\0\0\1" + key + PREFIX + label.encode("ascii") + b"/").digest()


def pair_of_names(first: int, second: int) -> bytes:
    """LE4(first) ‖ LE4(second)."""
    return little_endian(first, 4) + little_endian(second, 4)


class KeyStream:
    """AES-256-CTR from an all-zero counter block, applied to zeros."""

    def __init__(self, key: bytes) -> None:
        self.encryptor = Cipher(AES(key), CTR(bytes(16))).encryptor()

    def integer(self, size: int) -> int:
        """Read the next bytes as an LE integer."""
        return int.from_bytes(self.encryptor.update(bytes(size)), "little")


def set_of_users(users: Iterable[int], clients: int) -> bytes:
    """Write a set over n users as a bitmap of ⌈n/8⌉ bytes."""
    return little_endian(sum(1 << user for user in set(users)), (clients + 7) // 8)


def read_set_of_users(data: bytes, clients: int) -> list[int]:
    """Read a bitmap; the users come sorted."""
    demand(len(data) == (clients + 7) // 8, "MalformedMessage", "a set of users of another length")
    bits = int.from_bytes(data, "little")
    demand(bits < 1 << clients, "MalformedMessage", "a user at n or beyond")
    return [user for user in range(clients) if bits >> user & 1]


def cut(data: bytes, size: int, count: int, what: str) -> list[bytes]:
    """Cut joined pieces of one size apart; another length is malformed."""
    demand(len(data) == size * count, "MalformedMessage", f"{what}: {len(data)} bytes instead of {count} times {size}")
    return [data[size * place : size * (place + 1)] for place in range(count)]
