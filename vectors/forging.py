"""Forging messages: from those of recorded rounds, with fields changed or bytes damaged."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from sparsesecagg.crypto.checksum import checksum
from sparsesecagg.protocol.messages import decode_client_message, decode_server_message, encode
from vectors.form import Vector

Case = dict[str, Any]
"""One failure: an operation, its inputs, the error that must follow."""

MALFORMED = "MalformedMessage"

Kind = TypeVar("Kind")


class Rounds:
    """The recorded rounds, with the means to find a message and to forge another one from it."""

    def __init__(self, vectors: dict[str, Vector]) -> None:
        self._vectors = vectors

    def find(self, name: str, stage: str, *, sender: int | None = None, receiver: int | None = None) -> int:
        """Return the number of messages before the one that `sender` sent or `receiver` got at a stage."""
        for place, note in enumerate(self._vectors[name]["messages"]):
            if note["stage"] == stage and (
                (sender is not None and note.get("from") == sender)
                or (receiver is not None and receiver in note.get("to", []))
            ):
                return place
        raise LookupError(f"{name} has no such message at {stage}")

    def last(self, name: str, stage: str) -> int:
        """Return the number of messages up to the last one of a stage."""
        return 1 + max(place for place, note in enumerate(self._vectors[name]["messages"]) if note["stage"] == stage)

    def data(self, name: str, place: int) -> bytes:
        """Return the bytes of a message."""
        return bytes.fromhex(self._vectors[name]["messages"][place]["bytes"])

    def to_server(self, name: str, stage: str, sender: int, error: str, about: str, **changes: Any) -> Case:
        """Return a case in which the server gets a user's message of that stage with some fields changed."""
        place = self.find(name, stage, sender=sender)
        message = msgspec.structs.replace(decode_client_message(self.data(name, place)), **changes)
        return self.raw_to_server(name, place, encode(message), error, about)

    @staticmethod
    def raw_to_server(name: str, after: int, data: bytes, error: str, about: str, **more: Any) -> Case:
        """Return a case in which the server gets these bytes."""
        return {
            "about": about,
            "operation": "server_receives",
            "round": name,
            "after": after,
            **more,
            "bytes": data.hex(),
            "error": error,
        }

    def to_client(self, name: str, stage: str, user: int, error: str, about: str, **changes: Any) -> Case:
        """Return a case in which a user gets the server's message of that stage with some fields changed."""
        place = self.find(name, stage, receiver=user)
        message = msgspec.structs.replace(decode_server_message(self.data(name, place)), **changes)
        return self.raw_to_client(name, place, user, encode(message), error, about)

    @staticmethod
    def raw_to_client(name: str, after: int, user: int, data: bytes, error: str, about: str) -> Case:
        """Return a case in which a user gets these bytes."""
        return {
            "about": about,
            "operation": "client_receives",
            "round": name,
            "after": after,
            "user": user,
            "bytes": data.hex(),
            "error": error,
        }

    def got(self, name: str, stage: str, user: int, kind: type[Kind]) -> Kind:
        """Return the message that a user got at a stage."""
        message = decode_server_message(self.data(name, self.find(name, stage, receiver=user)))
        assert isinstance(message, kind)
        return message

    def sent(self, name: str, stage: str, user: int, kind: type[Kind]) -> Kind:
        """Return the message that a user sent at a stage."""
        message = decode_client_message(self.data(name, self.find(name, stage, sender=user)))
        assert isinstance(message, kind)
        return message

    def contexts(self, name: str) -> Vector:
        """Return what all sides of a round compute alike."""
        contexts: Vector = self._vectors[name]["contexts"]
        return contexts

    @staticmethod
    def closing(name: str, after: int, error: str, about: str, more: list[bytes] | None = None) -> Case:
        """Return a case in which the server ends the stage, after some more messages."""
        return {
            "about": about,
            "operation": "server_closes",
            "round": name,
            "after": after,
            "messages": [data.hex() for data in more or []],
            "error": error,
        }


def with_checksum(body: bytes) -> bytes:
    """Return a whole message: a body as forged, a checksum as it should be."""
    return body + checksum(body)


def flip(data: bytes, place: int) -> bytes:
    """Return the bytes with the lowest bit of one of them flipped."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def operation(operation: str, error: str, about: str, **inputs: Any) -> Case:
    """Return a case of a small operation, its inputs given by name."""
    written = {name: value.hex() if isinstance(value, bytes) else value for name, value in inputs.items()}
    return {"about": about, "operation": operation, **written, "error": error}
