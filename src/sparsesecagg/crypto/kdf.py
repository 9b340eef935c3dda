"""Hashing, key derivation and checksums. Every use has its own label, so no two uses can ever meet in one input."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from cryptography.hazmat.primitives.hashes import SHA256, SHA512, Hash
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.poly1305 import Poly1305

PREFIX = b"sparsesecagg/v3/"
DIGEST_SIZE = 32
CHECKSUM_SIZE = 8
_SHA256 = SHA256()
_SHA512 = Hash(SHA512())
_FIRST = (1).to_bytes(4, "big")
"""The counter of the one-step function, which ends with its first block here."""


def digest(label: str, *parts: bytes | bytearray | memoryview) -> bytes:
    """Return SHA-256 of the label and the parts, each preceded by its length so that parts can't run together."""
    state = _begun(label).copy()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.finalize()


@lru_cache(maxsize=64)
def _begun(label: str) -> Hash:
    """Return a hash that has taken in the label: in a large cohort everybody computes thousands with the same one."""
    state = Hash(SHA256())
    name = PREFIX + label.encode()
    state.update(len(name).to_bytes(8, "little"))
    state.update(name)
    return state


def derive(secret: bytes, label: str, context: bytes, names: bytes = b"", length: int = 32) -> bytes:
    """Return `length` bytes of HKDF-SHA256: salt = context digest, info = label and names of the parties."""
    return HKDF(_SHA256, length, context, _named(label) + names).derive(secret)


def one_step(secrets: Iterable[bytes], label: str, context: bytes, names: Iterable[bytes]) -> list[bytes]:
    """Return 32 bytes for each secret and its names, by the one-step function of NIST SP 800-56C with HMAC-SHA256.

    The hash that has taken in the context, its salt, serves all of them: a group of a hundred derives thousands when it
    is opened. Secrets and names have one length per label.
    """
    begun, name, found = HMAC(context, _SHA256), _named(label), []
    for secret, each in zip(secrets, names, strict=True):
        state = begun.copy()
        state.update(_FIRST + secret + name + each)
        found.append(state.finalize())
    return found


def expand(key: bytes, label: str) -> bytes:
    """Return 64 bytes that depend on a uniform 32-byte key and the label: the same function with SHA-512 alone."""
    state = _SHA512.copy()
    state.update(_FIRST + key + _named(label))
    return state.finalize()


@lru_cache(maxsize=64)
def _named(label: str) -> bytes:
    return PREFIX + label.encode() + b"/"


@lru_cache(maxsize=1 << 12)  # A user's partners are the same in all rounds.
def names(one: int, other: int) -> bytes:
    """Return two users' numbers as derivations take them."""
    return one.to_bytes(4, "little") + other.to_bytes(4, "little")


_CHECKSUM_KEY = digest("message")


def checksum(*pieces: bytes | memoryview) -> bytes:
    """Return a checksum of the pieces as they follow one another, against accidents on the way: Poly1305.

    Its key is public, so it protects from no attacker. It runs over every upload on both sides; SHA-256 takes four
    times as long, and a CRC of 32 bits twice.
    """
    state = Poly1305(_CHECKSUM_KEY)
    for piece in pieces:
        state.update(piece)
    return state.finalize()[:CHECKSUM_SIZE]
