"""What travels in Flower's messages: a small control record, and a payload.

Flower routes messages by type and a mod wraps registered functions only, so every stage travels as the message type
that the wrapped strategy uses, and the control record says which stage it is. Small payloads ride inside the control
record: each Flower object is a request of its own in a deployment. Large ones travel as an `Array` of a serialisation
type of our own, which Flower moves ten times faster than bytes in a `ConfigRecord`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, Error, Message, MetricRecord, RecordDict

from sparsesecagg.errors import MalformedMessage, SparseSecAggError
from sparsesecagg.protocol import Stage

CONTROL = "secagg"
"""The name of the control record in a message, and of the client's record in its context."""
BULK = "secagg-bulk"
VERSION = 1

REFUSED = 6
"""Flower's code for a mod that could not go on (`ErrorCode.MOD_FAILED_PRECONDITION`)."""
RAISED = 2
"""Flower's code for a ClientApp that raised an exception (`ErrorCode.CLIENT_APP_RAISED_EXCEPTION`)."""

_STYPE = "sparsesecagg.bytes"
_SMALL = 1 << 16
_PREFIX = "sparsesecagg: "
_LONGEST_REASON = 400

Value = ConfigRecordValues
Records = dict[str, ArrayRecord | MetricRecord | ConfigRecord]


@dataclass(frozen=True)
class Packet:
    """One stage's message to or from a client, as this engine sees it."""

    stage: Stage
    round_number: int
    payload: bytes = b""
    """What the protocol's state machine reads or wrote."""
    fields: Mapping[str, Value] = field(default_factory=dict)
    """What the engine adds: parameters, user number, keys for the next round, seconds."""

    def records(self) -> Records:
        """Return the Flower records that carry the packet."""
        control: dict[str, Value] = {"version": VERSION, "stage": self.stage.name, "round": self.round_number}
        control.update(self.fields)
        if not self.payload:  # Flower can't count the bytes of an empty value, so there is none.
            return {CONTROL: ConfigRecord(control)}
        if len(self.payload) <= _SMALL:
            return {CONTROL: ConfigRecord({**control, "payload": self.payload})}
        bulk = ArrayRecord({"0": Array("uint8", (len(self.payload),), _STYPE, self.payload)})
        return {CONTROL: ConfigRecord(control), BULK: bulk}

    @property
    def codec_bytes(self) -> int:
        """The bytes that the protocol and this engine want to send, before Flower frames them."""
        extra = sum(len(value) for value in self.fields.values() if isinstance(value, bytes))
        return len(self.payload) + extra

    def bytes_field(self, name: str) -> bytes:
        """Return a field that must be bytes."""
        value = self.fields.get(name)
        if not isinstance(value, bytes):
            raise MalformedMessage(f"the {self.stage.name} message has no {name}")
        return value

    def int_field(self, name: str) -> int:
        """Return a field that must be an integer."""
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise MalformedMessage(f"the {self.stage.name} message has no {name}")
        return value


def is_ours(content: RecordDict) -> bool:
    """Return whether a message belongs to secure aggregation."""
    return isinstance(content.get(CONTROL), ConfigRecord)


def read_packet(content: RecordDict) -> Packet:
    """Read a packet; refuse everything that is not exactly one."""
    control = content.get(CONTROL)
    if not isinstance(control, ConfigRecord):
        raise MalformedMessage("the message has no control record")
    fields = dict(control)
    version, name, number = (fields.pop(key, None) for key in ("version", "stage", "round"))
    if version != VERSION:
        raise MalformedMessage(f"the other side speaks version {version!r} of the Flower engine, this one {VERSION}")
    if name not in Stage.__members__ or not isinstance(number, int) or isinstance(number, bool):
        raise MalformedMessage("the control record names no stage or no round")
    payload = fields.pop("payload", b"")
    if BULK in content:
        bulk = content[BULK]
        array = bulk.get("0") if isinstance(bulk, ArrayRecord) and len(bulk) == 1 else None
        if array is None or array.stype != _STYPE or payload:
            raise MalformedMessage("the message has no payload that this engine can read")
        payload = array.data
    if not isinstance(payload, bytes):
        raise MalformedMessage("the payload is not bytes")
    return Packet(Stage[str(name)], number, payload, fields)


def without_ours(content: RecordDict) -> RecordDict:
    """Return what the wrapped strategy put into a message."""
    return RecordDict({name: record for name, record in content.items() if name not in (CONTROL, BULK)})


def refusal(message: Message, error: SparseSecAggError) -> Message:
    """Return the reply of a client that will not go on: the kind of error and its text, which holds no secret."""
    return Message(Error(REFUSED, f"{_PREFIX}{type(error).__name__}: {error}"), reply_to=message)


def reason_of(message: Message) -> str:
    """Return why a reply is an error, in one line of bounded length, whatever the node wrote."""
    text = " ".join((message.error.reason or f"error {message.error.code}").split())
    return text.removeprefix(_PREFIX)[:_LONGEST_REASON]


def is_refusal(message: Message) -> bool:
    """Return whether the client's mod refused to go on."""
    return message.has_error() and message.error.code == REFUSED and (message.error.reason or "").startswith(_PREFIX)


def wire_bytes(message: Message) -> int:
    """Return the bytes of all Flower objects of a message: what a deployment pushes, without HTTP around it."""
    return _object_bytes(message)


def _object_bytes(item: Any) -> int:
    return len(item.deflate()) + sum(_object_bytes(child) for child in (item.children or {}).values())
