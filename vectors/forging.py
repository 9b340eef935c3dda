"""Forging messages: from those of recorded runs, with fields changed or bytes damaged."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from sparsesecagg.crypto.kdf import checksum
from sparsesecagg.protocol.messages import decode_client_message, decode_server_message, encode
from vectors.form import Vector

Case = dict[str, Any]
"""One failure: an operation, its inputs, the error that must follow."""

MALFORMED = "MalformedMessage"

Kind = TypeVar("Kind")


class Runs:
    """The recorded runs, with the means to find a message and to forge another one from it."""

    def __init__(self, vectors: dict[str, Vector]) -> None:
        self._vectors = vectors

    def find(
        self, name: str, stage: str, *, sender: int | None = None, receiver: int | None = None, nth: int = 0
    ) -> int:
        """Return the number of steps before the one in which `sender` sent or `receiver` got its nth of a stage."""
        for place, step in enumerate(self._steps(name)):
            if step.get("stage") == stage and (
                (sender is not None and step.get("from") == sender)
                or (receiver is not None and receiver in step.get("to", []))
            ):
                if not nth:
                    return place
                nth -= 1
        raise LookupError(f"{name} has no such message at {stage}")

    def _steps(self, name: str) -> list[Vector]:
        steps: list[Vector] = self._vectors[name]["steps"]
        return steps

    def data(self, name: str, place: int) -> bytes:
        """Return the bytes of a message."""
        return bytes.fromhex(self._steps(name)[place]["bytes"])

    def groups(self, name: str) -> list[Vector]:
        """Return the groups of a run's first epoch."""
        groups: list[Vector] = self._vectors[name]["contexts"]["epochs"][0]["groups"]
        return groups

    def to_server(
        self, name: str, stage: str, sender: int, error: str, about: str, *, nth: int = 0, **changes: Any
    ) -> Case:
        """Return a case in which the server gets a user's message of that stage with some fields changed."""
        place = self.find(name, stage, sender=sender, nth=nth)
        message = msgspec.structs.replace(decode_client_message(self.data(name, place)), **changes)
        return self.raw_to_server(name, place, encode(message), error, about)

    @staticmethod
    def raw_to_server(name: str, after: int, data: bytes, error: str, about: str, **more: Any) -> Case:
        """Return a case in which the server gets these bytes."""
        inputs = {"run": name, "after": after, **more, "bytes": data.hex()}
        return {"about": about, "operation": "server_receives", **inputs, "error": error}

    def to_client(
        self, name: str, stage: str, user: int, error: str, about: str, *, nth: int = 0, **changes: Any
    ) -> Case:
        """Return a case in which a user gets the server's message of that stage with some fields changed."""
        place = self.find(name, stage, receiver=user, nth=nth)
        message = msgspec.structs.replace(decode_server_message(self.data(name, place)), **changes)
        return self.raw_to_client(name, place, user, encode(message), error, about)

    @staticmethod
    def raw_to_client(name: str, after: int, user: int, data: bytes, error: str, about: str) -> Case:
        """Return a case in which a user gets these bytes."""
        inputs = {"run": name, "after": after, "user": user, "bytes": data.hex()}
        return {"about": about, "operation": "client_receives", **inputs, "error": error}

    def got(self, name: str, stage: str, user: int, kind: type[Kind], nth: int = 0) -> Kind:
        """Return the message that a user got at a stage."""
        message = decode_server_message(self.data(name, self.find(name, stage, receiver=user, nth=nth)))
        assert isinstance(message, kind)
        return message

    def sent(self, name: str, stage: str, user: int, kind: type[Kind], nth: int = 0) -> Kind:
        """Return the message that a user sent at a stage."""
        message = decode_client_message(self.data(name, self.find(name, stage, sender=user, nth=nth)))
        assert isinstance(message, kind)
        return message

    @staticmethod
    def closing(name: str, after: int, error: str, about: str, more: list[bytes] | None = None) -> Case:
        """Return a case in which the server ends the stage, after some more messages."""
        messages = [data.hex() for data in more or []]
        inputs = {"run": name, "after": after, "messages": messages}
        return {"about": about, "operation": "server_closes", **inputs, "error": error}


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
