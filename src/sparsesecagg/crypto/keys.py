"""X25519 key pairs, fresh for every round, and agreement.

Each user has two pairs per round: one seals shares, the other makes masks. They must differ, because the private
mask key of a user who drops out is handed to the server.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey
from sparsesecagg.errors import InvalidKey

PUBLIC_KEY_SIZE = 32


def public_key(private: PrivateKey) -> bytes:
    """Return the public half of a private key."""
    return X25519PrivateKey.from_private_bytes(private.reveal()).public_key().public_bytes_raw()


class KeyAgreement:
    """One user's side of many agreements; parses the private key once."""

    def __init__(self, private: PrivateKey) -> None:
        self._private = X25519PrivateKey.from_private_bytes(private.reveal())

    def with_peer(self, public: bytes) -> AgreedSecret:
        """Agree with the owner of `public`; refuse a low-order point, with which the secret would be public."""
        try:
            return AgreedSecret(self._private.exchange(X25519PublicKey.from_public_bytes(public)))
        except ValueError:
            raise InvalidKey("a public key is unusable: a low-order point, with which the secret is public") from None


_ANYBODY = KeyAgreement(
    PrivateKey(bytes(range(32)))
)  # Protects nothing: a low-order point is one for every private key.


def require_usable(public: bytes) -> None:
    """Raise `InvalidKey` for a low-order point, whoever it is that would agree with it."""
    _ANYBODY.with_peer(public)
