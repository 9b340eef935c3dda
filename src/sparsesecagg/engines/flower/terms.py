"""The terms of a round: everything beside the protocol's parameters that decides what a client contributes.

The model, the strategy's own configuration, how arrays are scaled, which metrics are averaged. A server that told
different clients different terms could make all updates but one vanish (a learning rate of zero, a huge scale) and read
the one that is left out of the sum. So the digest of the terms stands in the parameters as the model's digest: clients
with other terms have other parameters, and nothing of theirs ends in a common sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from flwr.app import ArrayRecord, RecordDict

from sparsesecagg.engines.flower.records import Packet, Value
from sparsesecagg.errors import MalformedMessage


@dataclass(frozen=True)
class Terms:
    """What an UPLOAD message says beside the strategy's own content."""

    weight_key: str
    """The metric that holds a client's private weight."""
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

    def digest(self, content: RecordDict, models: dict[int, bytes] | None = None) -> bytes:
        """Return SHA-256 of the terms and of the strategy's content.

        `models` remembers the digests of ArrayRecords by their ids, for a server that looks at many messages.
        """
        state = hashlib.sha256(b"sparsesecagg/v1/flower terms")
        parts = [repr((self.weight_key, self.scales, list(self.metrics.items()))).encode()]
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
        for part in parts:
            state.update(len(part).to_bytes(8, "little"))
            state.update(part)
        return state.digest()


def model_digest(record: ArrayRecord) -> bytes:
    """Return SHA-256 of the names, types, shapes and values of a model."""
    state = hashlib.sha256(b"sparsesecagg/v1/flower model")
    for name, array in record.items():
        head = repr((name, array.dtype, tuple(array.shape), array.stype)).encode()
        for part in (head, array.data):
            state.update(len(part).to_bytes(8, "little"))
            state.update(part)
    return state.digest()


def _positive(values: object) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise MalformedMessage("the UPLOAD message has no terms")
    numbers = tuple(value for value in values if isinstance(value, float) and isfinite(value) and value > 0)
    if len(numbers) != len(values):
        raise MalformedMessage("the terms of the UPLOAD message hold a scale that is not positive")
    return numbers
