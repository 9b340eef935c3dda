"""Secrets that never print.

A secret shows as `MaskSeed(<32 bytes>)` in logs, tracebacks and debuggers, compares in constant time, can't be
pickled by accident, and can be wiped as far as Python allows (copies made by the interpreter are out of reach).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Self

from cryptography.hazmat.primitives.constant_time import bytes_eq

SECRET_SIZE = 32

Entropy = Callable[[int], bytes]
"""Returns that many random bytes: the system's, unless a test or a simulation says otherwise."""


class Secret:
    """Bytes that must not leak."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes | bytearray) -> None:
        self._value = bytearray(value)

    def reveal(self) -> bytes:
        """Return the bytes; the one place where a secret becomes visible."""
        return bytes(self._value)

    def wipe(self) -> None:
        """Overwrite the bytes with zeros."""
        self._value[:] = bytes(len(self._value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<{len(self._value)} bytes>)"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and type(other) is type(self) and bytes_eq(self.reveal(), other.reveal())

    __hash__ = None  # type: ignore[assignment]  # A hash would leak equality through timing.

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} can't be pickled")

    def __copy__(self) -> Self:
        return type(self)(self._value)


class PrivateKey(Secret):
    """The private half of an X25519 key pair."""


class AgreedSecret(Secret):
    """What two users agree on by X25519; never used as a key itself."""


class MaskSeed(Secret):
    """The key of a mask stream (from s_ij or s_i in the paper)."""


class PatternSeed(Secret):
    """The key of a pair's pattern stream (the seed of b_ij in the paper)."""


class PairSecrets(Secret):
    """Secrets of 32 bytes that a user shares with several others, one behind the other."""

    def reveal_each(self) -> list[bytes]:
        """Return the bytes of each."""
        value = self.reveal()
        return [value[start : start + SECRET_SIZE] for start in range(0, len(value), SECRET_SIZE)]


class PairRatchets(PairSecrets):
    """What the secrets of all later rounds follow from; they move on with the round number."""


class RoundSecrets(PairSecrets):
    """What pairs share in one round: they seal their shares and make their tags."""


class SharedSecret(Secret):
    """16 bytes that are dealt in shares: the source of a mask key, or the seed of a private mask."""


class SecretShares(Secret):
    """Shares of one's own secrets, kept by oneself."""
