"""What a client remembers between stages, and how to put it on disk.

One frozen record: a stage that succeeds replaces it, a stage that fails leaves it alone. Its secrets are of types that
do not print; the bytes that `save_state` writes do contain them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey, PrivateSeed, Secret, SecretShares
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol.stages import Stage


class ClientState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one user in one round."""

    user: int
    params: bytes
    """The encoded parameters."""
    stage: Stage = Stage.ADVERTISE_KEYS
    """The stage whose message comes next."""
    sealing_private: PrivateKey = msgspec.field(default_factory=lambda: PrivateKey(b""))
    mask_private: PrivateKey = msgspec.field(default_factory=lambda: PrivateKey(b""))
    private_seed: PrivateSeed = msgspec.field(default_factory=lambda: PrivateSeed(b""))
    nonce: bytes = b""
    directory: bytes = b""
    """The key directory, as it was received."""
    own_shares: SecretShares = msgspec.field(default_factory=lambda: SecretShares(b""))
    """The shares of its own secrets that the user keeps."""
    sealing_agreed: dict[int, AgreedSecret] = {}
    mask_agreed: dict[int, AgreedSecret] = {}
    members: bytes = b""
    """Who finished SHARE_KEYS, as a set of users."""
    nonces: bytes = b""
    inbox: dict[int, bytes] = {}
    """Sealed shares of the others."""
    opened: dict[int, SecretShares] = {}
    """The same, opened; in an authenticated round, where opening them is the proof that they are genuine."""
    clipped: int = 0
    confirmed: bytes = b""
    """The survivors that the user has settled for, as a set of users."""

    def with_changes(self, **changes: Any) -> ClientState:
        """Return the state with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def wiped(self) -> ClientState:
        """Overwrite what is of no more use, and return the state without it."""
        for secret in (self.sealing_private, self.mask_private, self.private_seed, self.own_shares):
            secret.wipe()
        for secrets in (self.sealing_agreed, self.mask_agreed, self.opened):
            for held in secrets.values():
                held.wipe()
        return self.with_changes(sealing_agreed={}, mask_agreed={}, opened={}, inbox={})


def save_state(state: ClientState) -> bytes:
    """Return the state as bytes; they hold the user's secrets."""
    return msgspec.msgpack.encode(state, enc_hook=_write_secret)


def restore_state(data: bytes) -> ClientState:
    """Return the state that `save_state` wrote."""
    try:
        return msgspec.msgpack.decode(data, type=ClientState, dec_hook=_read_secret)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise MalformedMessage("the bytes are not a saved client") from None


def _write_secret(value: Any) -> bytes:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value).__name__)  # msgspec's own word for "no such type"


def _read_secret(kind: type, value: Any) -> Any:
    if not isinstance(value, bytes):
        raise TypeError("secrets are saved as bytes")  # A number would ask for that much memory.
    return kind(value)
