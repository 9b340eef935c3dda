"""X25519 key pairs and agreement.

Each user has one pair per epoch that seals shares, and one per round that makes masks. They must differ, because the
private mask key of a user who drops out is handed to the server.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey
from sparsesecagg.errors import InvalidKey

PUBLIC_KEY_SIZE = 32

_UNUSABLE = "a public key is unusable: a low-order point, with which the secret is public"
_PRIME = 2**255 - 19
_LOW_ORDER = frozenset(
    {
        0,  # Order 1 and 2
        1,  # Order 4, on the curve and on its twist
        _PRIME - 1,
        0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,  # Order 8
        0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
    }
)
"""The u-coordinates of all points whose order divides 8, on the curve or its twist: X25519 sends them to zero."""


def public_key(private: PrivateKey) -> bytes:
    """Return the public half of a private key."""
    return X25519PrivateKey.from_private_bytes(private.reveal()).public_key().public_bytes_raw()


class KeyAgreement:
    """One user's side of many agreements; parses the private key once."""

    def __init__(self, private: PrivateKey) -> None:
        self._private = X25519PrivateKey.from_private_bytes(private.reveal())

    @property
    def public(self) -> bytes:
        """The public half of this user's key."""
        return self._private.public_key().public_bytes_raw()

    def with_peer(self, public: bytes) -> AgreedSecret:
        """Agree with the owner of `public`; refuse a low-order point, with which the secret would be public."""
        try:
            return AgreedSecret(self._private.exchange(X25519PublicKey.from_public_bytes(public)))
        except ValueError:
            raise InvalidKey(_UNUSABLE) from None


def require_usable(public: bytes) -> None:
    """Raise `InvalidKey` for a low-order point, which gives everybody the same secret.

    The points are known, so that the server of a large cohort need not multiply each key to find out.
    """
    coordinate = int.from_bytes(public, "little") % 2**255 % _PRIME  # X25519 ignores the top bit.
    if len(public) != PUBLIC_KEY_SIZE or coordinate in _LOW_ORDER:
        raise InvalidKey(_UNUSABLE)
