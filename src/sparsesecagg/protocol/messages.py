"""The messages of a round: frozen, versioned, compact, checked when they are read.

On the wire a message is one byte of version, a MessagePack array that starts with the message's name, and a checksum
against accidents on the way (no protection against an attacker; that is the transport's and the roster's). Sets of
users are bitmaps over the cohort; what belongs to several users is laid out in the order of their numbers, so no
numbers travel. All lengths follow from the round's parameters and are checked against them before use.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
import numpy as np

from sparsesecagg.crypto.checksum import CHECKSUM_SIZE, checksum
from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.shamir import SHARE_SIZE
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.protocol.parameters import MAX_CLIENTS, VERSION, VIEW_SIZE

USER_SIZE = 2
NONCE_SIZE = 16
CONFIRM_TAG_SIZE = 16
SEALED_SIZE = 2 * SHARE_SIZE + TAG_SIZE
"""A share of the mask key and a share of the private seed, sealed."""

Round = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
UserNumber = Annotated[bytes, msgspec.Meta(min_length=USER_SIZE, max_length=USER_SIZE)]
"""Two bytes, little-endian: MessagePack's own integers would make some users' messages longer than others'."""
PublicKey = Annotated[bytes, msgspec.Meta(min_length=PUBLIC_KEY_SIZE, max_length=PUBLIC_KEY_SIZE)]
Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_SIZE, max_length=DIGEST_SIZE)]
View = Annotated[bytes, msgspec.Meta(min_length=VIEW_SIZE, max_length=VIEW_SIZE)]
Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_SIZE, max_length=NONCE_SIZE)]
UserSet = Annotated[bytes, msgspec.Meta(max_length=MAX_CLIENTS // 8)]


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What all messages have: the round, and a view that tells which parameters the sender works with."""

    round_number: Round
    view: View


class UserMessage(Message, frozen=True):
    """What all messages of users have."""

    number: UserNumber

    @property
    def sender(self) -> int:
        """The user that sent it."""
        return int.from_bytes(self.number, "little")


class AdvertiseKeys(UserMessage, frozen=True, tag="advertise keys"):
    """User to server: two fresh public keys, and a commitment to the nonce that it will reveal with its shares."""

    sealing_key: PublicKey
    mask_key: PublicKey
    nonce_commitment: Digest


class KeyDirectory(Message, frozen=True, tag="key directory"):
    """Server to user: what all who advertised sent, in order: sealing key, mask key, commitment to the nonce."""

    users: UserSet
    entries: bytes


class ShareKeys(UserMessage, frozen=True, tag="share keys"):
    """User to server: a commitment to the private seed, the nonce, a sealed pair of shares per neighbour, in order."""

    seed_commitment: Digest
    nonce: Nonce
    shares: bytes


class ShareDelivery(Message, frozen=True, tag="share delivery"):
    """Server to user: who finished SHARE_KEYS, their nonces, and the sealed shares that neighbours sent to it."""

    users: UserSet
    nonces: bytes
    shares: bytes


class Upload(UserMessage, frozen=True, tag="upload"):
    """User to server: masked words of its blocks, and the blocks' numbers unless they are public."""

    locations: bytes
    words: memoryview


class ConfirmRequest(Message, frozen=True, tag="confirm request"):
    """Server to user, with a roster: whose uploads arrived. The user will open the sum of these and no others."""

    survivors: UserSet


class Confirm(UserMessage, frozen=True, tag="confirm"):
    """User to server: for each other survivor in order a tag that shows it which survivors this user was told."""

    tags: bytes


class UnmaskRequest(Message, frozen=True, tag="unmask request"):
    """Server to user: whose uploads arrived; with a roster also who confirmed that, and their tags for this user."""

    survivors: UserSet
    confirmers: UserSet = b""
    tags: bytes = b""


class Unmask(UserMessage, frozen=True, tag="unmask"):
    """User to server: one share per owner; of the private seed if the owner survived, else of the mask key."""

    owners: UserSet
    shares: bytes


ClientMessage = AdvertiseKeys | ShareKeys | Upload | Confirm | Unmask
ServerMessage = KeyDirectory | ShareDelivery | ConfirmRequest | UnmaskRequest

_CLIENT_DECODER: msgspec.msgpack.Decoder[ClientMessage] = msgspec.msgpack.Decoder(ClientMessage)
_SERVER_DECODER: msgspec.msgpack.Decoder[ServerMessage] = msgspec.msgpack.Decoder(ServerMessage)
_ENCODER = msgspec.msgpack.Encoder()
_VERSION = bytes([VERSION])

Kind = TypeVar("Kind")


def encode(message: Message) -> bytes:
    """Return the message's bytes."""
    body = _ENCODER.encode(message)
    return b"".join([_VERSION, body, checksum(_VERSION, body)])  # One copy: an upload may be as large as the model.


def decode_client_message(data: bytes) -> ClientMessage:
    """Read a message from a client."""
    return _decode(data, _CLIENT_DECODER)


def decode_server_message(data: bytes) -> ServerMessage:
    """Read a message from the server."""
    return _decode(data, _SERVER_DECODER)


def _decode(data: bytes, decoder: msgspec.msgpack.Decoder[Kind]) -> Kind:
    if data[:1] != _VERSION:
        found = f"version {data[0]}" if data else "nothing"
        raise MalformedMessage(f"expected a message of version {VERSION}, found {found}")
    body = memoryview(data)[:-CHECKSUM_SIZE]
    if checksum(body) != data[-CHECKSUM_SIZE:]:
        raise MalformedMessage("the bytes were changed or cut off on the way")
    try:
        return decoder.decode(body[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise MalformedMessage("the bytes are not a message of this protocol") from None


def user_number(user: int) -> bytes:
    """Return a user's number as it travels."""
    return user.to_bytes(USER_SIZE, "little")


def encode_users(users: Users, clients: int) -> bytes:
    """Return the bitmap of a set of users."""
    bits = np.zeros(clients, np.uint8)
    bits[users] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def decode_users(data: bytes, clients: int) -> Users:
    """Return the sorted users of a bitmap; refuse a bitmap of another cohort's size."""
    if len(data) != (clients + 7) // 8:
        raise MalformedMessage(f"a set of {clients} users takes {(clients + 7) // 8} bytes, not {len(data)}")
    users = np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little"))
    if len(users) and users[-1] >= clients:
        raise MalformedMessage(f"user {users[-1]} is not among the {clients} of the cohort")
    return users
