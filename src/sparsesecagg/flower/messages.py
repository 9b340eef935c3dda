"""What travels in Flower's messages, and the digest of it: the `context` that every header is bound to.

Flower routes messages by type and a mod wraps registered functions only, so every stage travels as the message type
that the wrapped strategy uses, and a control record says which stage it is. Small payloads ride inside the control
record: each Flower object is a request of its own in a deployment. Large ones travel as an `Array` of a serialisation
type of our own, which Flower moves ten times faster than bytes in a `ConfigRecord`.

A server that told different nodes different things (a learning rate of zero, a huge scale) could make all updates but
one vanish and read the one that is left in the sum. So the digest of everything that an app can see stands in the
round's header, each node computes it from what it was told itself, and masks are derived under the header: nodes that
were told different things have nothing in common. What is bound: the model with names, types, shapes and every bit, the
strategy's own records, the type of the message, the run's number and configuration, how arrays are scaled, which
metrics are averaged. What can't be bound is taken away (`for_app`). The hash of the app (FAB) would belong here and is
not to be had: Flower tells it to neither side of an app.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, TypeGuard

from flwr.app import (
    DEFAULT_TTL,
    Array,
    ArrayRecord,
    ConfigRecord,
    ConfigRecordValues,
    Context,
    Error,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import InvalidInput, MalformedMessage, SparseSecAggError
from sparsesecagg.flower.arrays import model_digest, own_records
from sparsesecagg.flower.errors import EmptyCohort
from sparsesecagg.protocol import Stage

CONTROL, BULK = "secagg", "secagg-bulk"
"""The names of our records in a message: control record, and payload where that is large."""
VERSION = 3
REFUSED, RAISED = 6, 2
"""Flower's codes for a mod that could not go on, and for a ClientApp that raised an exception."""
STYPE = "sparsesecagg.bytes"
"""The serialisation type of arrays that are bytes of ours."""
_SMALL, _LONGEST_REASON, _MOST_PACKAGES, _SUPERLINK = 1 << 16, 400, 8, 1
_PREFIX = "sparsesecagg: "
Value = ConfigRecordValues


@dataclass(frozen=True)
class Packet:
    """One stage's message to or from a node, as this engine sees it."""

    stage: Stage
    round_number: int
    """The protocol's round; at SHARE_KEYS, the round that the server is at."""
    payload: bytes = b""
    """What the protocol's state machine reads or wrote."""
    packages: Sequence[bytes] = ()
    """Keys for later rounds, which ride on whatever reply a node sends."""
    fields: Mapping[str, Value] = field(default_factory=dict)
    """What the engine adds: run, parameters, user number."""

    def records(self) -> dict[str, ArrayRecord | MetricRecord | ConfigRecord]:
        """Return the Flower records that carry the packet."""
        control: dict[str, Value] = {"version": VERSION, "stage": self.stage.name, "round": self.round_number}
        control.update(self.fields)
        if self.packages:  # Flower can't count the bytes of an empty value, so there is none.
            control["packages"] = list(self.packages)
        if len(self.payload) > _SMALL:
            bulk = ArrayRecord({"0": Array("uint8", (len(self.payload),), STYPE, self.payload)})
            return {CONTROL: ConfigRecord(control), BULK: bulk}
        return {CONTROL: ConfigRecord({**control, "payload": self.payload} if self.payload else control)}

    @property
    def codec_bytes(self) -> int:
        """The bytes that the protocol and this engine want to send, without packages, before Flower frames them."""
        return len(self.payload) + sum(len(value) for value in self.fields.values() if isinstance(value, bytes))

    @property
    def refusal(self) -> str | None:
        """Why the node does not answer, if it does not."""
        text = self.fields.get("refused")
        return in_one_line(text) if isinstance(text, str) else None

    def bytes_field(self, name: str) -> bytes:
        """Return a field that must be bytes."""
        if isinstance(value := self.fields.get(name), bytes):
            return value
        raise MalformedMessage(f"the {self.stage.name} message has no {name}")

    def int_field(self, name: str) -> int:
        """Return a field that must be an integer that is not negative."""
        if _is_number(value := self.fields.get(name)):
            return value
        raise MalformedMessage(f"the {self.stage.name} message has no {name}")

    def rounds_field(self, name: str) -> list[int]:
        """Return a field that lists rounds; none if it is missing."""
        value = self.fields.get(name, [])
        if isinstance(value, list) and all(_is_number(number) for number in value):
            return [int(number) for number in value]
        raise MalformedMessage(f"the {self.stage.name} message lists no rounds as {name}")


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


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
    listed = packages if isinstance(packages, list) and len(packages) <= _MOST_PACKAGES else [None]
    given = tuple(each for each in listed if isinstance(each, bytes))
    if len(given) != len(listed):
        raise MalformedMessage("the packages are not bytes")
    return Packet(Stage[name], number, payload, given, fields)


def without_ours(content: RecordDict) -> RecordDict:
    """Return what the wrapped strategy put into a message."""
    return RecordDict({name: record for name, record in content.items() if name not in (CONTROL, BULK)})


def wire_bytes(item: Any) -> int:
    """Return the bytes of all Flower objects of a message: what a deployment pushes, without HTTP around it."""
    return len(item.deflate()) + sum(map(wire_bytes, (item.children or {}).values()))


# Refusals


def refusal(message: Message, error: SparseSecAggError, packet: Packet | None = None) -> Message:
    """Return the reply of a node that will not go on: the kind of error and its text, which holds no secret.

    Errors of Flower carry nothing else, so packages and fields that are due all the same need an ordinary reply.
    """
    text = f"{type(error).__name__}: {error}"
    if packet is None or not (packet.packages or packet.fields):
        return Message(Error(REFUSED, _PREFIX + text), reply_to=message)
    refused = replace(packet, payload=b"", fields={**packet.fields, "refused": text})
    return Message(RecordDict(refused.records()), reply_to=message)


def is_refusal(message: Message) -> bool:
    """Return whether the node's mod refused to go on."""
    reason = message.error.reason
    return message.error.code == REFUSED and isinstance(reason, str) and reason.startswith(_PREFIX)


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


# The context of a round


@dataclass(frozen=True)
class Terms:
    """What an UPLOAD message says beside the strategy's own content."""

    scales: tuple[float, ...]
    """For each array that travels: the change of a parameter that becomes 1, the largest that is sent.

    None in a round that finds them: users send votes instead of their updates, and the updates in the next round.
    """
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics to be averaged, each with the magnitude that becomes 1."""

    def fields(self) -> dict[str, Value]:
        """Return the terms as entries of a control record."""
        bounds = [float(bound) for bound in self.metrics.values()]
        fields: dict[str, list[Any]] = {"scales": list(self.scales), "metrics": list(self.metrics), "bounds": bounds}
        return {name: value for name, value in fields.items() if value}  # Flower can't count an empty list's bytes.

    @staticmethod
    def read(packet: Packet) -> Terms:
        """Read the terms from a control record; refuse whatever could not be computed with."""
        scales, names, bounds = (packet.fields.get(name, []) for name in ("scales", "metrics", "bounds"))
        if not (_are_positive(scales) and _are_positive(bounds)):
            raise MalformedMessage("the terms of the UPLOAD message must be scales and bounds above 0")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise MalformedMessage("the metrics of the UPLOAD message must be names")
        if not len(set(names)) == len(names) == len(bounds):
            raise MalformedMessage("the metrics of the UPLOAD message do not come with a bound each")
        return Terms(tuple(scales), {str(name): bound for name, bound in zip(names, bounds, strict=True)})

    def digest(self, content: RecordDict, message_type: str, app: bytes) -> bytes:
        """Return the context of a round: these terms, the strategy's records, the type, and `app_digest`."""
        parts = [_encoded(list(self.scales)), _encoded([item for pair in self.metrics.items() for item in pair])]
        parts.append(message_type.encode())
        for name in sorted(content):
            record = content[name]
            if isinstance(record, ArrayRecord):
                parts += [name.encode(), model_digest(record)]
            else:
                parts += [name.encode(), digest(type(record).__name__, _encoded_items(record))]
        return digest("flower context", app, *parts)


def app_digest(context: Context) -> bytes:
    """Return the digest of what a node is told of the run with every task: its number and its configuration."""
    return digest("flower app", str(context.run_id).encode(), _encoded_items(context.run_config))


def for_app(message: Message, content: RecordDict, round_number: int, context: Context) -> Message:
    """Return the message that the app gets: nothing in it is the server's that the context does not bind.

    Arrays are framed by this node's NumPy, records are in order, metadata are the node's own but for type and round.
    """
    metadata = Metadata(
        run_id=context.run_id,
        message_id="",
        src_node_id=_SUPERLINK,
        dst_node_id=context.node_id,
        reply_to_message_id="",
        group_id=str(round_number),
        created_at=time.time(),
        ttl=DEFAULT_TTL,
        message_type=message.metadata.message_type,
    )
    return Message(content=own_records(content), metadata=metadata)  # type: ignore[call-overload,no-any-return]


def _encoded_items(record: Mapping[str, object]) -> bytes:
    return b"".join(_encoded(part) for name in sorted(record) for part in (name, record[name]))


def _encoded(value: object) -> bytes:
    """Return bytes that tell values apart as an app can: by type, and floats by their bits."""
    if isinstance(value, list):
        kind, data = "list", b"".join(_encoded(each) for each in value)
    elif isinstance(value, float):
        kind, data = "float", struct.pack("<d", value)
    elif isinstance(value, bytes):
        kind, data = "bytes", value
    else:
        kind, data = type(value).__name__, str(value).encode("utf-8", "surrogatepass")
    return f"{kind} {len(data)} ".encode() + data


def _are_positive(values: object) -> TypeGuard[list[float]]:
    return isinstance(values, list) and all(isinstance(v, float) and isfinite(v) and v > 0 for v in values)


# The server's messages


@dataclass(frozen=True)
class Invitation:
    """Whom the wrapped strategy wants to train, and what it sends all of them."""

    nodes: tuple[int, ...]
    message_type: str
    content: RecordDict

    @staticmethod
    def of(messages: Sequence[Message]) -> Invitation:
        """Return what the messages of a strategy come to; refuse one that sends nodes different things."""
        if not messages:
            raise EmptyCohort
        nodes = sorted(message.metadata.dst_node_id for message in messages)
        if len(set(nodes)) != len(nodes):
            raise InvalidInput("strategy", "must send each node one message, and sends some node two")
        # Strategies share one content among all messages, which need not be looked at more than once.
        told = list({(id(each.content), each.metadata.message_type): each for each in messages}.values())
        if any(len(each.content.array_records) != 1 for each in told):
            raise InvalidInput("strategy", "must send one ArrayRecord in each message: the model")
        types, contents = [each.metadata.message_type for each in told], [each.content for each in told]
        if len(told) > 1 and len({Terms(()).digest(*each, b"") for each in zip(contents, types, strict=True)}) > 1:
            raise InvalidInput("strategy", "must send all nodes the same model and configuration")
        return Invitation(tuple(nodes), types[0], contents[0])

    @property
    def key(self) -> str:
        """The name of the record that holds the model."""
        return next(iter(self.content.array_records))

    @property
    def model(self) -> ArrayRecord:
        """The model in the content."""
        return self.content.array_records[self.key]

    def with_model(self, model: ArrayRecord) -> Invitation:
        """Return the invitation with another model."""
        return self if model is self.model else replace(self, content=RecordDict({**self.content, self.key: model}))

    def message(self, node: int, packet: Packet, timeout: float, content: RecordDict | None = None) -> Message:
        """Return a message to a node that carries a packet, and the strategy's own content where given."""
        # A message outlives its stage, so that the grid knows the node for busy as long as it may be.
        ttl = max(60.0, 3 * timeout)
        records = {**(without_ours(content) if content else {}), **packet.records()}
        return Message(RecordDict(records), node, self.message_type, ttl=ttl, group_id=str(packet.round_number))

    def reply(self, model: ArrayRecord, metrics: Mapping[str, float]) -> Message:
        """Return what the wrapped strategy is given, as if a node had sent it."""
        request = Message(RecordDict(), self.nodes[0], self.message_type)
        return Message(RecordDict({self.key: model, "metrics": MetricRecord(dict(metrics))}), reply_to=request)
