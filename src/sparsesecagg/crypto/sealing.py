"""Sealing shares: authenticated encryption from one user to another, through a server that may not read or swap them.

The key is derived for one context (parameters, model, all keys), one sender and one receiver, and seals one message, so
the nonce is constant. The associated data names round, sender and receiver again. A ciphertext opens nowhere else.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from sparsesecagg.crypto.kdf import derive
from sparsesecagg.crypto.secrets import AgreedSecret, ConfirmKey, SealingKey
from sparsesecagg.errors import InvalidShare

TAG_SIZE = 16
_NONCE = bytes(12)


def sealing_key(agreed: AgreedSecret, context: bytes, sender: int, receiver: int) -> SealingKey:
    """Derive the key for shares from `sender` to `receiver`; each direction has its own."""
    return SealingKey(derive(agreed.reveal(), "sealing", context, _names(sender, receiver)))


def confirm_key(agreed: AgreedSecret, context: bytes, sender: int, receiver: int) -> ConfirmKey:
    """Derive the key with which `sender` confirms something to `receiver`."""
    return ConfirmKey(derive(agreed.reveal(), "confirm", context, _names(sender, receiver)))


def confirmation(key: ConfirmKey, statement: bytes, size: int) -> bytes:
    """Return a tag by which the receiver knows that the sender made this statement."""
    state = HMAC(key.reveal(), SHA256())
    state.update(statement)
    return state.finalize()[:size]


def seal(key: SealingKey, plain: bytes, round_number: int, sender: int, receiver: int) -> bytes:
    """Encrypt and authenticate; the result is TAG_SIZE bytes longer."""
    return AESGCM(key.reveal()).encrypt(_NONCE, plain, _associated(round_number, sender, receiver))


def unseal(key: SealingKey, sealed: bytes, round_number: int, sender: int, receiver: int) -> bytes:
    """Decrypt, or raise `InvalidShare` when the bytes were not sealed for exactly this use."""
    try:
        return AESGCM(key.reveal()).decrypt(_NONCE, sealed, _associated(round_number, sender, receiver))
    except InvalidTag:
        raise InvalidShare(f"the share from user {sender} to user {receiver} does not open") from None


def _names(sender: int, receiver: int) -> bytes:
    return sender.to_bytes(4, "little") + receiver.to_bytes(4, "little")


def _associated(round_number: int, sender: int, receiver: int) -> bytes:
    return b"share/" + round_number.to_bytes(8, "little") + _names(sender, receiver)
