"""The messages: frozen, versioned, compact, checked when they are read.

On the wire a message is one byte of version, a MessagePack array that starts with the message's name, and a checksum
against accidents on the way (no protection against an attacker; that is the transport's and the roster's). Sets of
users are bitmaps over the group; what belongs to several users is laid out in the order of their indices in it, so no
numbers travel. All lengths follow from the parameters and the groups, and are checked against them before use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, TypeVar

import msgspec
import numpy as np

from sparsesecagg.crypto.kdf import CHECKSUM_SIZE, DIGEST_SIZE, checksum
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.crypto.sealing import SEAL_OVERHEAD
from sparsesecagg.crypto.shamir import SHARE_SIZE
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.patterns.groups import Users
from sparsesecagg.protocol.parameters import MAX_CLIENTS, VERSION

USER_SIZE = 4
BINDING_SIZE = 8
SEALED_SIZE = 2 * SHARE_SIZE + SEAL_OVERHEAD
"""A share of the mask secret and a share of the private seed, sealed."""
LARGEST_ROUND = (1 << 63) - 1

Round = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ROUND)]
UserNumber = Annotated[bytes, msgspec.Meta(min_length=USER_SIZE, max_length=USER_SIZE)]
"""Little-endian: MessagePack's own integers would make some users' messages longer than others'."""
PublicKey = Annotated[bytes, msgspec.Meta(min_length=PUBLIC_KEY_SIZE, max_length=PUBLIC_KEY_SIZE)]
Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_SIZE, max_length=DIGEST_SIZE)]
Binding = Annotated[bytes, msgspec.Meta(min_length=BINDING_SIZE, max_length=BINDING_SIZE)]
UserSet = Annotated[bytes, msgspec.Meta(max_length=MAX_CLIENTS // 8)]


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What all messages have: the round, and what the sender works with.

    The binding is the start of a digest: of the parameters (ADVERTISE_KEYS), of the epoch (key packages and headers),
    of the header (from UPLOAD on).
    """

    round_number: Round
    binding: Binding


class UserMessage(Message, frozen=True):
    """What all messages of users have."""

    number: UserNumber

    @property
    def sender(self) -> int:
        """The user that sent it."""
        return int.from_bytes(self.number, "little")


class AdvertiseKeys(UserMessage, frozen=True, tag="advertise keys"):
    """User to server, once per epoch: a fresh sealing key. The round is the epoch."""

    sealing_key: PublicKey


class EpochKeys(Message, frozen=True, tag="epoch keys"):
    """Server to user: who of its group advertised a key, and their sealing keys. The round is the epoch."""

    first_round: Round
    present: UserSet
    keys: bytes


class ShareKeys(UserMessage, frozen=True, tag="share keys"):
    """User to server, ahead of the round: its key package."""

    mask_key: PublicKey
    """Fresh; others derive masks with it."""
    commitment: Digest
    """To the private seed, so that the server recognises it."""
    shares: bytes
    """A sealed pair of shares per holder, in order."""


class RoundHeader(Message, frozen=True, tag="round header"):
    """Server to user: who takes part in the round, for what, and the shares that the others have dealt to it."""

    members: UserSet
    """Whose key packages are used."""
    mask_keys: bytes
    """Those of all members."""
    context: Digest
    """Everything else that decides what a user contributes, as a digest: the model, for one."""
    shares: bytes


class Upload(UserMessage, frozen=True, tag="upload"):
    """User to server: masked words, their locations unless they are public, a tag over the header for each holder."""

    locations: bytes
    words: memoryview
    tags: bytes


class UnmaskRequest(Message, frozen=True, tag="unmask request"):
    """Server to user: whose uploads arrived, and their tags over the header."""

    survivors: UserSet
    tags: bytes


class Unmask(UserMessage, frozen=True, tag="unmask"):
    """User to server: one share per owner."""

    survivors: UserSet
    """Those whose tag was valid: of these the private seed, of all others the mask secret."""
    owners: UserSet
    """Of whom there is a share: all members but those whose sealed pair did not open."""
    shares: bytes


ClientMessage = AdvertiseKeys | ShareKeys | Upload | Unmask
ServerMessage = EpochKeys | RoundHeader | UnmaskRequest

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
    if not isinstance(data, bytes | bytearray | memoryview):  # The caller's mistake, not the peer's.
        raise InvalidInput("data", f"must be the bytes of a message, got {type(data).__name__}")
    if data[:1] != _VERSION:
        found = f"version {data[0]}" if data else "nothing"
        raise MalformedMessage(f"expected a message of version {VERSION}, found {found}")
    body = memoryview(data)[:-CHECKSUM_SIZE]
    if checksum(body) != data[-CHECKSUM_SIZE:]:
        raise MalformedMessage("the bytes were changed or cut off on the way")
    try:
        return decoder.decode(body[1:])
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors.
        raise MalformedMessage("the bytes are not a message of this protocol") from None


def user_number(user: int) -> bytes:
    """Return a user's number as it travels."""
    return user.to_bytes(USER_SIZE, "little")


def number_bytes(number: int) -> bytes:
    """Return a round or an epoch as digests take it."""
    return number.to_bytes(8, "little")


def encode_users(users: Iterable[int], count: int) -> bytes:
    """Return the bitmap of a set of indices among `count`."""
    bits = np.zeros(count, np.uint8)
    bits[np.fromiter(users, np.int64)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


@lru_cache(maxsize=64)  # The users of a round nearly all send the same one, and each is read several times.
def decode_users(data: bytes, count: int) -> Users:
    """Return the sorted indices of a bitmap, read-only; refuse a bitmap of another group's size."""
    if len(data) != (count + 7) // 8:
        raise MalformedMessage(f"a set of {count} users takes {(count + 7) // 8} bytes, got {len(data)}")
    users = np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little"))
    if len(users) and users[-1] >= count:
        raise MalformedMessage(f"index {users[-1]} is not among the {count} of the group")
    users.flags.writeable = False
    return users


def pieces(data: bytes, count: int, size: int, what: str) -> list[bytes]:
    """Cut `data` into `count` pieces of `size` bytes; refuse any other length."""
    require_pieces(data, count, size, what)
    return [data[start : start + size] for start in range(0, len(data), size)]


def require_pieces(data: bytes, count: int, size: int, what: str) -> None:
    """Raise unless `data` consists of `count` pieces of `size` bytes."""
    if len(data) != count * size:
        raise MalformedMessage(f"{what} of {count} users take {count * size} bytes, got {len(data)}")


def sorted_by_receiver(sent: Mapping[int, tuple[Users, bytes]], size: int) -> dict[int, bytes]:
    """Return each receiver's pieces of `size` bytes, in the order of their senders.

    `sent` has by sender the receivers, and one piece for each of them, one behind the other. A group of P users
    exchanges P² sealed shares and P² tags in a round, so they are moved as arrays and not one by one.
    """
    if not sent:
        return {}
    senders = sorted(sent)
    receivers = np.concatenate([sent[sender][0] for sender in senders])
    parts = np.frombuffer(b"".join(sent[sender][1] for sender in senders), np.dtype((np.void, size)))
    order = np.argsort(receivers, kind="stable")
    found, starts = np.unique(receivers[order], return_index=True)
    behind = np.append(starts, len(order))[1:].tolist()
    return {
        receiver: parts[order[start:stop]].tobytes()
        for receiver, start, stop in zip(found.tolist(), starts.tolist(), behind, strict=True)
    }
