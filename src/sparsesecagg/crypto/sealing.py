"""What a pair of users does with its secret of a round: seal shares for each other, and tag statements.

The secret belongs to one pair, one epoch and one round. Every use has its own key, named after its purpose, the
sender and the receiver, so that nothing can be reflected or moved; a sealing key seals one message, so the nonce is
constant.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from sparsesecagg.crypto.kdf import derive, expand
from sparsesecagg.crypto.secrets import PairRatchet, RoundSecret

TAG_SIZE = 8
"""A tag can be tried once, by a server that must get it past another user: 2^−64 is little enough."""
SEAL_OVERHEAD = TAG_SIZE
"""The same goes for a sealed pair of shares; a forged one would only be a false share, which the opening notices."""

_NONCE = bytes(13)


def pair_ratchet(agreed: bytes, context: bytes, one: int, other: int) -> PairRatchet:
    """Start a pair's ratchet from what the two have agreed on; the same for both sides."""
    return PairRatchet(derive(agreed, "pair", context, _names(min(one, other), max(one, other))))


def next_ratchet(ratchet: PairRatchet) -> PairRatchet:
    """Return the ratchet of the next round; there is no way back."""
    return PairRatchet(expand(ratchet.reveal(), "next round"))


def round_secret(ratchet: PairRatchet) -> RoundSecret:
    """Return the secret of the round that the ratchet stands at."""
    return RoundSecret(expand(ratchet.reveal(), "this round"))


def seal(secret: RoundSecret, sender: int, receiver: int, plain: bytes) -> bytes:
    """Encrypt and authenticate a user's one message of the round to another; SEAL_OVERHEAD bytes longer."""
    return _cipher(secret, sender, receiver).encrypt(_NONCE, plain, None)


def unseal(secret: RoundSecret, sender: int, receiver: int, sealed: bytes) -> bytes | None:
    """Decrypt, or return None when the bytes were not sealed for exactly this use."""
    try:
        return _cipher(secret, sender, receiver).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None


def tag(secret: RoundSecret, purpose: str, sender: int, receiver: int, statement: bytes) -> bytes:
    """Return the bytes that show the receiver which statement (a digest) the sender makes, and to whom."""
    return expand(secret.reveal(), purpose, _names(sender, receiver), statement)[:TAG_SIZE]


def _cipher(secret: RoundSecret, sender: int, receiver: int) -> AESCCM:
    return AESCCM(expand(secret.reveal(), "seal", _names(sender, receiver)), SEAL_OVERHEAD)


def _names(one: int, other: int) -> bytes:
    return one.to_bytes(4, "little") + other.to_bytes(4, "little")
