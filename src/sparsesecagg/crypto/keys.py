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
_LOW_ORDER = (
    0,  # Order 1 and 2
    1,  # Order 4, on the curve and on its twist
    _PRIME - 1,
    0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,  # Order 8
    0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
)
"""The u-coordinates of all points whose order divides 8, on the curve or its twist: X25519 sends them to zero."""
_LOW_ORDER_KEYS = frozenset(
    (number | top).to_bytes(PUBLIC_KEY_SIZE, "little")
    for coordinate in _LOW_ORDER
    for number in (coordinate, coordinate + _PRIME)
    for top in (0, 1 << 255)
    if number < 1 << 255
)
"""All ways to write them: X25519 reduces what it reads, and ignores the top bit."""


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

    def with_peer(self, public: bytes | X25519PublicKey) -> AgreedSecret:
        """Agree with the owner of `public`; refuse a low-order point, with which the secret would be public."""
        try:
            return AgreedSecret(self._private.exchange(parsed(public) if isinstance(public, bytes) else public))
        except ValueError:
            raise InvalidKey(_UNUSABLE) from None


def parsed(public: bytes) -> X25519PublicKey:
    """Return a public key as `with_peer` takes it too: parsed once for many agreements."""
    return X25519PublicKey.from_public_bytes(public)


def require_usable(*public: bytes) -> None:
    """Raise `InvalidKey` for a low-order point, which gives everybody the same secret.

    The points are known, so that nobody need multiply each key of a large cohort to find out.
    """
    if any(len(each) != PUBLIC_KEY_SIZE for each in public) or not _LOW_ORDER_KEYS.isdisjoint(public):
        raise InvalidKey(_UNUSABLE)
