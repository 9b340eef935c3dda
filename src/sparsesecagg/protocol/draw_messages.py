"""The messages of a draw, in the form of all messages: a version, a MessagePack array, a checksum (`messages`).

They belong to no round. Sets of users are bitmaps over the roster; reveals stand in the order of the named users.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from sparsesecagg.crypto.chain import CHAIN_NONCE_SIZE, MAX_DRAWS
from sparsesecagg.crypto.checksum import CHECKSUM_SIZE, checksum
from sparsesecagg.crypto.identity import SIGNATURE_SIZE
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol.messages import Digest, UserNumber, UserSet
from sparsesecagg.protocol.parameters import VERSION

REVEAL_SIZE = SIGNATURE_SIZE + CHAIN_NONCE_SIZE
"""A juror's signature, then its nonce."""

DrawNumber = Annotated[int, msgspec.Meta(ge=1, le=MAX_DRAWS)]
Reveal = Annotated[bytes, msgspec.Meta(min_length=REVEAL_SIZE, max_length=REVEAL_SIZE)]


class DrawMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What all messages of a draw have: its number."""

    draw: DrawNumber


class DrawRequest(DrawMessage, frozen=True, tag="draw request"):
    """Server to named jurors, the same for all: who will be put into groups, and which jurors will reveal."""

    roster_digest: Digest
    population: UserSet
    named: UserSet


class DrawReveal(DrawMessage, frozen=True, tag="draw reveal"):
    """Juror to server: its signature over statement and nonce, and the nonce."""

    number: UserNumber
    reveal: Reveal

    @property
    def sender(self) -> int:
        """The juror that sent it."""
        return int.from_bytes(self.number, "little")


class DrawProof(DrawMessage, frozen=True, tag="draw proof"):
    """Server to everybody: the statement, and the reveals of all named jurors in order."""

    population: UserSet
    named: UserSet
    reveals: bytes


AnyDrawMessage = DrawRequest | DrawReveal | DrawProof

_DECODER: msgspec.msgpack.Decoder[AnyDrawMessage] = msgspec.msgpack.Decoder(AnyDrawMessage)
_VERSION = bytes([VERSION])


def encode_draw(message: AnyDrawMessage) -> bytes:
    """Return the message's bytes."""
    body = _VERSION + msgspec.msgpack.encode(message)
    return body + checksum(body)


def decode_draw(data: bytes) -> AnyDrawMessage:
    """Read a message of a draw."""
    body = data[:-CHECKSUM_SIZE]
    if body[:1] != _VERSION or checksum(body) != data[-CHECKSUM_SIZE:]:
        raise MalformedMessage(f"the bytes are not a message of version {VERSION}, or were changed on the way")
    try:
        return _DECODER.decode(body[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise MalformedMessage("the bytes are not a message of a draw") from None
