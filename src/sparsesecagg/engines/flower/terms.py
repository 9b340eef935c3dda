"""The terms of a round: everything beside the protocol's parameters that decides what a node contributes.

The model, the strategy's own configuration, the type of the message, the run's configuration, how arrays are scaled,
which metrics are averaged. A server that told different nodes different terms could make all updates but one vanish (a
learning rate of zero, a huge scale) and read the one that is left out of the sum. So the digest of the terms stands in
the round's order, each node computes it from what it was told itself, and masks are derived under the order: nodes that
were told different things have nothing in common.

The hash of the app (FAB) would belong here and is not to be had: Flower tells it to neither side of an app.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.engines.flower.arrays import view
from sparsesecagg.engines.flower.errors import EmptyCohort
from sparsesecagg.engines.flower.records import Packet, Value
from sparsesecagg.errors import InvalidInput, MalformedMessage


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
