"""What travels in Flower's messages: a small control record, a payload, and the terms of a round.

Flower routes messages by type and a mod wraps registered functions only, so every stage travels as the message type
that the wrapped strategy uses, and the control record says which stage it is. Small payloads ride inside the control
record: each Flower object is a request of its own in a deployment. Large ones travel as an `Array` of a serialisation
type of our own, which Flower moves ten times faster than bytes in a `ConfigRecord`. Packages of keys ride on whatever
reply a node sends.

The terms are everything beside the protocol's parameters that decides what a node contributes: the model, the
strategy's own configuration, the type of the message, the run's configuration, how arrays are scaled, which metrics are
averaged. A server that told different nodes different terms could make all updates but one vanish (a learning rate of
zero, a huge scale) and read the one that is left out of the sum. So the digest of the terms stands in the round's
order, each node computes it from what it was told itself, and masks are derived under the order: nodes that were told
different things have nothing in common. The hash of the app (FAB) would belong here and is not to be had: Flower tells
it to neither side of an app.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    ConfigRecordValues,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.flower.arrays import view
from sparsesecagg.flower.errors import EmptyCohort
from sparsesecagg.errors import InvalidInput, MalformedMessage, SparseSecAggError
from sparsesecagg.protocol import Stage

CONTROL = "secagg"
"""The name of the control record in a message."""
BULK = "secagg-bulk"
VERSION = 2

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
    """Keys for later rounds, as a node deals them."""
    fields: Mapping[str, Value] = field(default_factory=dict)
    """What the engine adds: run, parameters, user number, seconds."""

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
    def package_bytes(self) -> int:
        """The bytes of the packages."""
        return sum(map(len, self.packages))

    def bytes_field(self, name: str) -> bytes:
        """Return a field that must be bytes."""
        value = self.fields.get(name)
        if not isinstance(value, bytes):
            raise MalformedMessage(f"the {self.stage.name} message has no {name}")
        return value

    def int_field(self, name: str) -> int:
        """Return a field that must be an integer that is not negative."""
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise MalformedMessage(f"the {self.stage.name} message has no {name}")
        return value

    def rounds_field(self, name: str) -> list[int]:
        """Return a field that lists rounds; none if it is missing."""
        value = self.fields.get(name, [])
        if not isinstance(value, list) or not all(isinstance(number, int) for number in value):
            raise MalformedMessage(f"the {self.stage.name} message lists no rounds as {name}")
        return [int(number) for number in value]


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
    if name not in Stage.__members__ or not isinstance(number, int) or isinstance(number, bool) or number < 0:
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
    return Packet(Stage[str(name)], number, payload, tuple(bytes(each) for each in packages), fields)  # type: ignore[arg-type]


def without_ours(content: RecordDict) -> RecordDict:
    """Return what the wrapped strategy put into a message."""
    return RecordDict({name: record for name, record in content.items() if name not in (CONTROL, BULK)})


def refusal(message: Message, error: SparseSecAggError, packet: Packet | None = None) -> Message:
    """Return the reply of a node that will not go on: the kind of error and its text, which holds no secret.

    Errors of Flower carry nothing else, so packages that are due all the same need an ordinary reply.
    """
    text = f"{type(error).__name__}: {error}"
    if packet is None or not packet.packages:
        return Message(Error(REFUSED, _PREFIX + text), reply_to=message)
    refused = Packet(packet.stage, packet.round_number, b"", packet.packages, {**packet.fields, "refused": text})
    return Message(RecordDict(refused.records()), reply_to=message)


def reason_of(message: Message) -> str:
    """Return why a reply is an error, in one line of bounded length, whatever the node wrote."""
    return in_one_line((message.error.reason or f"error {message.error.code}").removeprefix(_PREFIX))


def in_one_line(text: str) -> str:
    """Return a text of a node as a log can take it."""
    return " ".join(text.split())[:_LONGEST_REASON]


def is_refusal(message: Message) -> bool:
    """Return whether the node's mod refused to go on."""
    return message.has_error() and message.error.code == REFUSED and (message.error.reason or "").startswith(_PREFIX)


def wire_bytes(message: Message) -> int:
    """Return the bytes of all Flower objects of a message: what a deployment pushes, without HTTP around it."""
    return _object_bytes(message)


def _object_bytes(item: Any) -> int:
    return len(item.deflate()) + sum(_object_bytes(child) for child in (item.children or {}).values())


# Terms


@dataclass(frozen=True)
class Terms:
    """What an UPLOAD message says beside the strategy's own content."""

    weight_key: str
    """The metric that holds a node's private weight."""
    scales: tuple[float, ...]
    """For each array that travels: the change of a parameter that becomes 1, the largest that is sent."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics to be averaged, each with the magnitude that becomes 1."""

    def fields(self) -> dict[str, Value]:
        """Return the terms as entries of a control record."""
        fields: dict[str, Value] = {"weight-key": self.weight_key, "scales": list(self.scales)}
        if self.metrics:  # Flower can't count the bytes of an empty list.
            fields |= {"metrics": list(self.metrics), "bounds": [float(bound) for bound in self.metrics.values()]}
        return fields

    @staticmethod
    def read(packet: Packet) -> Terms:
        """Read the terms from a control record; refuse whatever could not be computed with."""
        key = packet.fields.get("weight-key")
        scales, bounds = _positive(packet.fields.get("scales")), _positive(packet.fields.get("bounds", []))
        names = packet.fields.get("metrics", [])
        if not isinstance(key, str) or not isinstance(names, list) or not scales:
            raise MalformedMessage("the UPLOAD message has no terms")
        metrics = {str(name): bound for name, bound in zip(names, bounds, strict=False)}
        if not len(metrics) == len(names) == len(bounds):
            raise MalformedMessage("the metrics of the UPLOAD message do not come with a bound each")
        return Terms(key, scales, metrics)

    def digest(
        self, content: RecordDict, message_type: str, run_config: bytes, models: dict[int, bytes] | None = None
    ) -> bytes:
        """Return the digest of the terms and of all that the strategy and the run say; `run_config` is a digest too.

        `models` remembers the digests of ArrayRecords by their ids, for a server that looks at many messages.
        """
        parts = [repr((self.weight_key, self.scales, list(self.metrics.items()))).encode(), message_type.encode()]
        for name in sorted(content):
            record = content[name]
            parts.append(name.encode())
            if isinstance(record, ArrayRecord):
                known = models if models is not None else {}
                if id(record) not in known:
                    known[id(record)] = model_digest(record)
                parts.append(known[id(record)])
            else:
                parts.append(repr((type(record).__name__, sorted(record.items()))).encode())
        return digest("flower terms", run_config, *parts)


def model_digest(record: ArrayRecord) -> bytes:
    """Return SHA-256 of the names, types, shapes and values of a model."""
    state = hashlib.sha256(b"sparsesecagg/v2/flower model")
    for name, array in record.items():
        values = np.ascontiguousarray(view(array))
        # Not the bytes of the record: versions of NumPy frame the same values differently.
        head = repr((name, values.dtype.str, tuple(array.shape))).encode()
        for part in (head, values.reshape(-1).view(np.uint8).data):
            state.update(len(part).to_bytes(8, "little"))
            state.update(part)
    return state.digest()


def run_config_digest(context: Context) -> bytes:
    """Return the digest of the run's configuration, which a node is told with every task."""
    settings = sorted((name, type(value).__name__, value) for name, value in context.run_config.items())
    return digest("flower run config", repr(settings).encode())


@dataclass(frozen=True)
class Invitation:
    """What the wrapped strategy wants to send to one node."""

    node: int
    message_type: str
    content: RecordDict

    @property
    def model(self) -> ArrayRecord:
        """The model in the content."""
        return next(iter(self.content.array_records.values()))

    def message(self, packet: Packet, timeout: float | None, content: RecordDict | None = None) -> Message:
        """Return a message to the node that carries a packet, and the strategy's own content where given."""
        # A message outlives its stage, so that the courier knows the node for busy as long as it may be.
        ttl = None if timeout is None else max(60.0, 3 * timeout)
        # Strategies share one content among all messages, so it is copied.
        records = {**(content or {}), **packet.records()}
        return Message(RecordDict(records), self.node, self.message_type, ttl=ttl, group_id=str(packet.round_number))


def invite(messages: Sequence[Message]) -> list[Invitation]:
    """Return whom the wrapped strategy wants to train, in the order of their ids."""
    if not messages:
        raise EmptyCohort
    invitations = sorted(
        (Invitation(m.metadata.dst_node_id, m.metadata.message_type, m.content) for m in messages),
        key=lambda invitation: invitation.node,
    )
    if len({invitation.node for invitation in invitations}) != len(invitations):
        raise InvalidInput("strategy", "must send each node one message, and sends some node two")
    if any(len(invitation.content.array_records) != 1 for invitation in invitations):
        raise InvalidInput("strategy", "must send one ArrayRecord in each message: the model")
    return invitations


def with_model(invitations: Sequence[Invitation], model: ArrayRecord) -> list[Invitation]:
    """Return the invitations with this model in place of the one that they all have."""
    if invitations[0].model is model:
        return list(invitations)
    contents: dict[int, RecordDict] = {}  # Strategies share one content among all messages, and so it stays.
    for each in invitations:
        key = next(iter(each.content.array_records))
        contents.setdefault(id(each.content), RecordDict({**each.content, key: model}))
    return [replace(each, content=contents[id(each.content)]) for each in invitations]


def common_digest(terms: Terms, invitations: Sequence[Invitation], run_config: bytes) -> bytes:
    """Return the digest of what all nodes are sent; refuse a strategy that sends them different things."""
    contents = {(id(each.content), each.message_type): each.content for each in invitations}
    models: dict[int, bytes] = {}
    digests = {terms.digest(content, kind, run_config, models) for (_, kind), content in contents.items()}
    if len(digests) != 1:
        raise InvalidInput(
            "strategy",
            "must send all nodes the same model and configuration, or they refuse the round",
        )
    return digests.pop()


def _positive(values: object) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise MalformedMessage("the UPLOAD message has no terms")
    numbers = tuple(value for value in values if isinstance(value, float) and isfinite(value) and value > 0)
    if len(numbers) != len(values):
        raise MalformedMessage("the terms of the UPLOAD message hold a scale that is not positive")
    return numbers
