"""What travels in Flower's messages: a small control record, a payload, key packages, refusals.

Flower routes messages by type and a mod wraps registered functions only, so every stage travels as the message type
that the wrapped strategy uses, and the control record says which stage it is. Small payloads ride inside the control
record: each Flower object is a request of its own in a deployment. Large ones travel as an `Array` of a serialisation
type of our own, which Flower moves ten times faster than bytes in a `ConfigRecord`. Key packages ride on whatever
reply a node sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, Error, Message, MetricRecord, RecordDict

from sparsesecagg.errors import MalformedMessage, SparseSecAggError
from sparsesecagg.protocol import Stage

CONTROL = "secagg"
"""The name of the control record in a message."""
BULK = "secagg-bulk"
VERSION = 3

REFUSED = 6
"""Flower's code for a mod that could not go on (`ErrorCode.MOD_FAILED_PRECONDITION`)."""
RAISED = 2
"""Flower's code for a ClientApp that raised an exception (`ErrorCode.CLIENT_APP_RAISED_EXCEPTION`)."""

STYPE = "sparsesecagg.bytes"
"""The serialisation type of arrays that are bytes of ours."""
_SMALL = 1 << 16
_PREFIX = "sparsesecagg: "
_LONGEST_REASON = 400
_MOST_PACKAGES = 8

Value = ConfigRecordValues
Records = dict[str, ArrayRecord | MetricRecord | ConfigRecord]


@dataclass(frozen=True)
class Packet:
    """One stage's message to or from a node, as this engine sees it."""

    stage: Stage
    round_number: int
    """The protocol's round; at SHARE_KEYS, the round that the server is at."""
    payload: bytes = b""
    """What the protocol's state machine reads or wrote."""
    packages: Sequence[bytes] = ()
    """Keys for later rounds."""
    fields: Mapping[str, Value] = field(default_factory=dict)
    """What the engine adds: run, parameters, user number."""

    def records(self) -> Records:
        """Return the Flower records that carry the packet."""
        control: dict[str, Value] = {"version": VERSION, "stage": self.stage.name, "round": self.round_number}
        control.update(self.fields)
        if self.packages:  # Flower can't count the bytes of an empty value, so there is none.
            control["packages"] = list(self.packages)
        if not self.payload:
            return {CONTROL: ConfigRecord(control)}
        if len(self.payload) <= _SMALL:
            return {CONTROL: ConfigRecord({**control, "payload": self.payload})}
        bulk = ArrayRecord({"0": Array("uint8", (len(self.payload),), STYPE, self.payload)})
        return {CONTROL: ConfigRecord(control), BULK: bulk}

    @property
    def codec_bytes(self) -> int:
        """The bytes that the protocol and this engine want to send, without packages, before Flower frames them."""
        extra = sum(len(value) for value in self.fields.values() if isinstance(value, bytes))
        return len(self.payload) + extra

    @property
    def refusal(self) -> str | None:
        """Why the node does not answer, if it does not."""
        text = self.fields.get("refused")
        return in_one_line(text) if isinstance(text, str) else None

    def bytes_field(self, name: str) -> bytes:
        """Return a field that must be bytes."""
        value = self.fields.get(name)
        if not isinstance(value, bytes):
            raise MalformedMessage(f"the {self.stage.name} message has no {name}")
        return value

    def int_field(self, name: str, largest: int = (1 << 63) - 1) -> int:
        """Return a field that must be an integer from 0 to `largest`."""
        value = self.fields.get(name)
        if not _is_number(value, largest):
            raise MalformedMessage(f"the {self.stage.name} message has no {name}")
        return int(value)  # type: ignore[arg-type]

    def rounds_field(self, name: str) -> list[int]:
        """Return a field that lists rounds; none if it is missing."""
        value = self.fields.get(name, [])
        if not isinstance(value, list) or not all(_is_number(number) for number in value):
            raise MalformedMessage(f"the {self.stage.name} message lists no rounds as {name}")
        return [int(number) for number in value]


def _is_number(value: object, largest: int = (1 << 63) - 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest


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
        raise MalformedMessage(f"the other side speaks another version of the Flower engine than {VERSION}")
    if not isinstance(name, str) or name not in Stage.__members__ or not _is_number(number):
        raise MalformedMessage("the control record names no stage or no round")
    payload, packages = fields.pop("payload", b""), fields.pop("packages", [])
    if BULK in content:
        bulk = content[BULK]
        array = bulk.get("0") if isinstance(bulk, ArrayRecord) and len(bulk) == 1 else None
        if array is None or array.stype != STYPE or payload:
            raise MalformedMessage("the message has no payload that this engine can read")
        payload = array.data
    if not isinstance(payload, bytes):
        raise MalformedMessage("the payload is not bytes")
    if (
        not isinstance(packages, list)
        or len(packages) > _MOST_PACKAGES
        or not all(isinstance(each, bytes) for each in packages)
    ):
        raise MalformedMessage("the packages are not bytes")
    return Packet(Stage[name], int(number), payload, tuple(bytes(each) for each in packages), fields)  # type: ignore[arg-type]


def without_ours(content: RecordDict) -> RecordDict:
    """Return what the wrapped strategy put into a message."""
    return RecordDict({name: record for name, record in content.items() if name not in (CONTROL, BULK)})


def refusal(message: Message, error: SparseSecAggError, packet: Packet | None = None) -> Message:
    """Return the reply of a node that will not go on: the kind of error and its text, which holds no secret.

    Errors of Flower carry nothing else, so packages and fields that are due all the same need an ordinary reply.
    """
    text = f"{type(error).__name__}: {error}"
    if packet is None or not (packet.packages or packet.fields):
        return Message(Error(REFUSED, _PREFIX + text), reply_to=message)
    refused = Packet(packet.stage, packet.round_number, b"", packet.packages, {**packet.fields, "refused": text})
    return Message(RecordDict(refused.records()), reply_to=message)


def reason_of(message: Message) -> str:
    """Return why a reply is an error, in one line of bounded length, whatever the node wrote."""
    reason = message.error.reason
    text = reason if isinstance(reason, str) and reason else f"error {message.error.code}"
    lines = [line for line in text.removeprefix(_PREFIX).splitlines() if line.strip()]
    # Ray reports an exception as a page, with the exception itself at its end.
    return in_one_line(lines[-1] if lines else text)


def in_one_line(text: str) -> str:
    """Return a text of a node as a log can take it: printable, one line, of bounded length."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[: 8 * _LONGEST_REASON])
    return " ".join(printable.split())[:_LONGEST_REASON]


def is_refusal(message: Message) -> bool:
    """Return whether the node's mod refused to go on."""
    reason = message.error.reason
    return message.error.code == REFUSED and isinstance(reason, str) and reason.startswith(_PREFIX)


def wire_bytes(item: Any) -> int:
    """Return the bytes of all Flower objects of a message: what a deployment pushes, without HTTP around it."""
    return len(item.deflate()) + sum(map(wire_bytes, (item.children or {}).values()))
