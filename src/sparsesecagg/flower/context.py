"""What the ClientApp sees of a round, and its digest: the `context` that every header is bound to.

A server that told different nodes different things (a learning rate of zero, a huge scale) could make all updates but
one vanish and read the one that is left in the sum. So the digest of everything that an app can see stands in the
round's header, each node computes it from what it was told itself, and masks are derived under the header: nodes that
were told different things have nothing in common. What is bound: the model with names, types, shapes and every bit, the
strategy's own records, the type of the message, the run's number and configuration, how arrays are scaled, which
metrics are averaged.

What can't be bound is taken away: the app gets a message that this node has made, with its arrays framed by this node's
NumPy, its records in order, and metadata that are the node's own but for the type and the round. Which node it is, and
what its owner configured, an app sees as before. The hash of the app (FAB) would belong here and is not to be had:
Flower tells it to neither side of an app.
"""

from __future__ import annotations

import hashlib
import io
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np
from flwr.app import DEFAULT_TTL, Array, ArrayRecord, Context, Message, Metadata, MetricRecord, RecordDict

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.flower.arrays import view
from sparsesecagg.flower.errors import EmptyCohort
from sparsesecagg.flower.records import Packet, Value, without_ours

_SUPERLINK = 1


@dataclass(frozen=True)
class Terms:
    """What an UPLOAD message says beside the strategy's own content."""

    scales: tuple[float, ...]
    """For each array that travels: the change of a parameter that becomes 1, the largest that is sent.

    None in a round that finds them: users send votes instead of their updates, and the updates in the next round.
    """
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics to be averaged, each with the magnitude that becomes 1."""

    @property
    def finds_ranges(self) -> bool:
        """Whether nodes vote for ranges."""
        return not self.scales

    @property
    def without_scales(self) -> Terms:
        """The terms of a round that finds the scales."""
        return replace(self, scales=())

    def fields(self) -> dict[str, Value]:
        """Return the terms as entries of a control record."""
        fields: dict[str, Value] = {}  # Flower can't count the bytes of an empty list.
        if self.scales:
            fields["scales"] = list(self.scales)
        if self.metrics:
            fields |= {"metrics": list(self.metrics), "bounds": [float(bound) for bound in self.metrics.values()]}
        return fields

    @staticmethod
    def read(packet: Packet) -> Terms:
        """Read the terms from a control record; refuse whatever could not be computed with."""
        scales, bounds = _positive(packet.fields.get("scales", [])), _positive(packet.fields.get("bounds", []))
        names = packet.fields.get("metrics", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise MalformedMessage("the UPLOAD message has no terms")
        metrics = {str(name): bound for name, bound in zip(names, bounds, strict=False)}
        if not len(metrics) == len(names) == len(bounds):
            raise MalformedMessage("the metrics of the UPLOAD message do not come with a bound each")
        return Terms(scales, metrics)

    def digest(
        self, content: RecordDict, message_type: str, app: bytes, models: dict[int, bytes] | None = None
    ) -> bytes:
        """Return the context of a round: these terms, the strategy's records, the type, and `app_digest`.

        `models` remembers the digests of ArrayRecords by their ids, for a server that looks at many messages.
        """
        parts = [_encoded(list(self.scales)), _encoded([item for pair in self.metrics.items() for item in pair])]
        parts.append(message_type.encode())
        known = {} if models is None else models
        for name in sorted(content):
            record = content[name]
            parts.append(name.encode())
            if isinstance(record, ArrayRecord):
                if id(record) not in known:
                    known[id(record)] = model_digest(record)
                parts.append(known[id(record)])
            else:
                parts.append(digest(type(record).__name__, _encoded_items(record)))
        return digest("flower context", app, *parts)


def model_digest(record: ArrayRecord) -> bytes:
    """Return SHA-256 of the names, types, shapes and values of a model."""
    state = hashlib.sha256(b"sparsesecagg/v3/flower model")
    for name, array in record.items():
        values = np.ascontiguousarray(view(array))
        # Not the bytes of the record: versions of NumPy frame the same values differently.
        head = repr((name, values.dtype.str, view(array).shape)).encode()
        for part in (head, values.reshape(-1).view(np.uint8).data):
            state.update(len(part).to_bytes(8, "little"))
            state.update(part)
    return state.digest()


def app_digest(context: Context) -> bytes:
    """Return the digest of what a node is told of the run with every task: its number and its configuration."""
    return digest("flower app", str(context.run_id).encode(), _encoded_items(context.run_config))


def for_app(message: Message, content: RecordDict, round_number: int, context: Context) -> Message:
    """Return the message that the app gets: nothing in it is the server's that the context does not bind."""
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


def own_records(content: RecordDict) -> RecordDict:
    """Return a copy in a fixed order, whose arrays the receiver may change or clear."""
    own = RecordDict()
    for name in sorted(content):
        record = content[name]
        if isinstance(record, ArrayRecord):
            own[name] = ArrayRecord({key: own_array(array) for key, array in record.items()})
        else:
            own[name] = type(record)({key: record[key] for key in sorted(record)})  # type: ignore[misc]
    return own


def own_array(array: Array) -> Array:
    """Return an array framed as this node's NumPy does it; bytes are shared if they are already."""
    values, head = view(array), io.BytesIO()
    written = {"descr": values.dtype.str, "fortran_order": False, "shape": values.shape}
    np.lib.format.write_array_header_1_0(head, written)
    if array.data.startswith(head.getvalue()):
        return Array(array.dtype, array.shape, array.stype, array.data)
    return Array(np.array(values, order="C"))


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


def _positive(values: object) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise MalformedMessage("the UPLOAD message has no terms")
    numbers = tuple(value for value in values if isinstance(value, float) and isfinite(value) and value > 0)
    if len(numbers) != len(values):
        raise MalformedMessage("the terms of the UPLOAD message hold a scale that is not positive")
    return numbers


# The server's side


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

    def message(self, packet: Packet, timeout: float, content: RecordDict | None = None) -> Message:
        """Return a message to the node that carries a packet, and the strategy's own content where given."""
        # A message outlives its stage, so that the courier knows the node for busy as long as it may be.
        ttl = max(60.0, 3 * timeout)
        # Strategies share one content among all messages, so it is copied.
        records = {**(without_ours(content) if content else {}), **packet.records()}
        return Message(RecordDict(records), self.node, self.message_type, ttl=ttl, group_id=str(packet.round_number))

    def reply(self, model: ArrayRecord, metrics: Mapping[str, float]) -> Message:
        """Return what the wrapped strategy is given, as if the node had sent it."""
        key, request = next(iter(self.content.array_records)), Message(RecordDict(), self.node, self.message_type)
        return Message(RecordDict({key: model, "metrics": MetricRecord(dict(metrics))}), reply_to=request)


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


def common_digest(terms: Terms, invitations: Sequence[Invitation], app: bytes) -> bytes:
    """Return the context of what all nodes are sent; refuse a strategy that sends them different things."""
    contents = {(id(each.content), each.message_type): each.content for each in invitations}
    models: dict[int, bytes] = {}
    digests = {terms.digest(content, kind, app, models) for (_, kind), content in contents.items()}
    if len(digests) != 1:
        raise InvalidInput("strategy", "must send all nodes the same model and configuration, or they refuse the round")
    return digests.pop()
