"""What a pair of users does with its secret of a round: seal shares for each other, and tag statements.

The secret belongs to one pair, one epoch and one round, and is the key of one cipher, AES-256-CCM. Every use has its
own nonce, which names its purpose, the sender and the receiver, so that nothing can be reflected or moved, and none
comes twice: a user seals one message for another in a round, and makes one statement to it.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from sparsesecagg.crypto.kdf import derive, expand, names
from sparsesecagg.crypto.secrets import SECRET_SIZE, PairRatchets, RoundSecrets

TAG_SIZE = 8
"""A tag can be tried once, by a server that must get it past another user: 2^−64 is little enough."""
SEAL_OVERHEAD = TAG_SIZE
"""The same goes for a sealed pair of shares; a forged one would only be a false share, which the opening notices."""

PairCipher = AESCCM
"""What a pair has in one round, keyed with its secret; it does not print."""

_SEAL, _TAG = b"seal\0", b"tag\0\0"
"""What a nonce of 13 bytes begins with; the numbers of sender and receiver follow."""


def pair_ratchet(agreed: bytes, context: bytes, one: int, other: int) -> bytes:
    """Return the first ratchet of a pair, from what the two have agreed on; the same for both sides."""
    return derive(agreed, "pair", context, names(min(one, other), max(one, other)))


def step(ratchets: PairRatchets) -> tuple[PairRatchets, RoundSecrets]:
    """Return the ratchets of the next round, from which there is no way back, and the secrets of this one."""
    both = [expand(ratchet, "round") for ratchet in ratchets.reveal_each()]
    following, secrets = (b"".join([each[at : at + SECRET_SIZE] for each in both]) for at in (0, SECRET_SIZE))
    return PairRatchets(following), RoundSecrets(secrets)


def ciphers(secrets: RoundSecrets) -> list[PairCipher]:
    """Return the cipher of each pair."""
    return [AESCCM(secret, TAG_SIZE) for secret in secrets.reveal_each()]


def seal(cipher: PairCipher, sender: int, receiver: int, plain: bytes) -> bytes:
    """Encrypt and authenticate a user's one message of the round to another; SEAL_OVERHEAD bytes longer."""
    return cipher.encrypt(_SEAL + names(sender, receiver), plain, None)


def unseal(cipher: PairCipher, sender: int, receiver: int, sealed: bytes) -> bytes | None:
    """Decrypt, or return None when the bytes were not sealed for exactly this use."""
    try:
        return cipher.decrypt(_SEAL + names(sender, receiver), sealed, None)
    except InvalidTag:
        return None


def tag(cipher: PairCipher, sender: int, receiver: int, statement: bytes) -> bytes:
    """Return the bytes that show the receiver which statement (a digest) the sender makes, and to whom."""
    return cipher.encrypt(_TAG + names(sender, receiver), b"", statement)


def is_tag(cipher: PairCipher, sender: int, receiver: int, statement: bytes, made: bytes) -> bool:
    """Tell whether the sender made these bytes to show the receiver this statement."""
    try:
        return not cipher.decrypt(_TAG + names(sender, receiver), made, statement)
    except InvalidTag:
        return False
