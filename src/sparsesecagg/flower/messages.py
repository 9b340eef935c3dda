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
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
from flwr.app import (
    DEFAULT_TTL,
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import InvalidInput, MalformedMessage, ProtocolError, SparseSecAggError, require
from sparsesecagg.flower.arrays import model_digest, own_records
from sparsesecagg.protocol import Stage

CONTROL, BULK = "secagg", "secagg-bulk"
"""The names of our records in a message: control record, and payload where that is large."""
VERSION = 3
REFUSED, RAISED = 6, 2
"""Flower's codes for a mod that could not go on, and for a ClientApp that raised an exception."""
STYPE = "sparsesecagg.bytes"
"""The serialisation type of arrays that are bytes of ours."""
_SMALL, _LONGEST_REASON, _SUPERLINK = 1 << 16, 400, 1
_PREFIX = "sparsesecagg: "


_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Positive = Annotated[float, msgspec.Meta(gt=0, le=sys.float_info.max)]


class Packet(msgspec.Struct, frozen=True, omit_defaults=True, rename="kebab"):
    """One stage's message to or from a node: the entries of the control record, of which most are missing."""

    stage: Stage
    round_number: _Number = msgspec.field(name="round")
    """The protocol's round; at SHARE_KEYS, the round that the server is at."""
    payload: bytes = b""
    """What the protocol's state machine reads or wrote."""
    packages: Annotated[list[bytes], msgspec.Meta(max_length=8)] = []
    """Keys for later rounds, which ride on whatever reply a node sends."""
    run: bytes | None = None
    user: _Number | None = None
    params: bytes | None = None
    epoch: _Number | None = None
    wanted: list[_Number] = []
    """The rounds whose packages the server lacks."""
    challenge: bytes | None = None
    proof: bytes | None = None
    app: bytes | None = None
    """What the node was told of the run (`app_digest`)."""
    last_round: _Number | None = None
    last_epoch: _Number | None = None
    """What it has seen of it."""
    scales: list[_Positive] = []
    metrics: list[str] = []
    bounds: list[_Positive] = []
    """`Terms`."""
    model: _Number | None = None
    """The number of a whole model, so that steps can follow it."""
    order: bytes | None = None
    """Its arrangement."""
    held: _Number | None = None
    """Which model the node has kept."""
    refused: str | None = None
    """Why the node does not answer, in its own words."""

    def records(self) -> dict[str, ArrayRecord | MetricRecord | ConfigRecord]:
        """Return the Flower records that carry the packet, without what is empty: Flower can't count its bytes."""
        control = {"version": VERSION, **msgspec.to_builtins(self, builtin_types=(bytes,))}
        if len(self.payload) <= _SMALL:
            return {CONTROL: ConfigRecord(control)}
        bulk = Array("uint8", (len(self.payload),), STYPE, control.pop("payload"))
        return {CONTROL: ConfigRecord(control), BULK: ArrayRecord({"0": bulk})}

    @property
    def codec_bytes(self) -> int:
        """The bytes that the protocol and this engine want to send, without packages, before Flower frames them."""
        return sum(len(value) for value in msgspec.structs.asdict(self).values() if isinstance(value, bytes))

    def need(self, name: str) -> Any:
        """Return an entry that the stage can't do without."""
        if (value := getattr(self, name)) is None:
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
    if control.get("version") != VERSION:
        raise MalformedMessage(f"the other side speaks another version of the Flower engine than {VERSION}")
    try:
        packet = msgspec.convert(dict(control), Packet, builtin_types=(bytes,))
    except msgspec.ValidationError as problem:
        raise MalformedMessage(f"the control record can't be read: {in_one_line(str(problem))}") from None
    if BULK not in content:
        return packet
    bulk = content[BULK]
    array = bulk.get("0") if isinstance(bulk, ArrayRecord) and len(bulk) == 1 else None
    if array is None or array.stype != STYPE or packet.payload:
        raise MalformedMessage("the message has no payload that this engine can read")
    return msgspec.structs.replace(packet, payload=array.data)


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
    if packet is None or packet == Packet(packet.stage, packet.round_number):
        return Message(Error(REFUSED, _PREFIX + text), reply_to=message)
    return Message(RecordDict(msgspec.structs.replace(packet, refused=text).records()), reply_to=message)


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

    def entries(self) -> dict[str, Any]:
        """Return the terms as entries of a packet."""
        return {"scales": list(self.scales), "metrics": list(self.metrics), "bounds": list(self.metrics.values())}

    @staticmethod
    def read(packet: Packet) -> Terms:
        """Read the terms from a packet."""
        if not len(set(packet.metrics)) == len(packet.metrics) == len(packet.bounds):
            raise MalformedMessage("the metrics of the UPLOAD message do not come with a bound each")
        return Terms(tuple(packet.scales), dict(zip(packet.metrics, packet.bounds, strict=True)))

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
            raise ProtocolError("the wrapped strategy chose no node for this round")
        nodes = sorted(message.metadata.dst_node_id for message in messages)
        require("strategy", len(set(nodes)) == len(nodes), "must send each node one message, and sends some node two")
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
