"""How nodes get the model: whole, or as steps from the one that they hold. The server's side.

With steps the rounded model *is* the model: what the wrapped strategy returns is rounded (the error is kept for the
next step), and Flower, evaluation and nodes all go on from the same bits. A node says which model it has kept; who is
behind gets the steps that it lacks or the whole model, whichever is smaller, and who refused gets the whole one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from sparsesecagg.downlink import StepLog
from sparsesecagg.engines.flower.arrays import Template, view
from sparsesecagg.engines.flower.records import Value
from sparsesecagg.engines.flower.steps import NUMBER, join, rebuild, steps_record
from sparsesecagg.errors import InvalidInput, MalformedMessage

DOWNLINKS = ("steps", "model")
DEFAULT = "steps"


class WayDown:
    """Whole models, in every message."""

    def offer(self, record: ArrayRecord) -> ArrayRecord:
        """Return the model that nodes are to train on where the strategy wants to send this one."""
        return record

    def advance(self, template: Template, record: ArrayRecord) -> ArrayRecord:
        """Return the model that follows a round, given what the strategy made of the mean."""
        return template.cast(record)

    def parcel(self, node: int, content: RecordDict) -> tuple[RecordDict, dict[str, Value], int]:
        """Return what a node is sent instead of the strategy's content, entries for the control record, and bytes."""
        del node
        return content, {}, _data_bytes(_model_of(content)[1].values())

    def heard(self, node: int, held: object) -> None:
        """Note which model a node says that it has kept."""

    def lost(self, node: int) -> None:
        """Note that a node could not use what it was sent."""

    def save(self) -> bytes:
        """Return what the next rounds depend on, beside the model."""
        return b""

    def restore(self, state: bytes, model: ArrayRecord) -> None:
        """Go back to what `save` returned, with the model of that time; raises `MalformedMessage` for other bytes."""


class StepsDown(WayDown):
    """Steps of `bits` bits per coordinate."""

    def __init__(self, bits: int = 4) -> None:
        self.bits = bits
        self._log: StepLog | None = None
        self._template: Template | None = None
        self._record = ArrayRecord()
        """The model as nodes hold it."""
        self._held: dict[int, int] = {}
        """By node: the number of the model that it has kept."""

    def offer(self, record: ArrayRecord) -> ArrayRecord:
        """Return the rounded model, after one more step if the strategy wants to send another one than it was given."""
        if record is self._record:
            return record
        template = Template.of(record)
        if self._log is None or template != self._template:
            # Numbers go on, so that a node can't take a model of another shape for the one before.
            number = self._log.sequence + 1 if self._log else 0
            self._log, self._template, self._held = StepLog(join(template, record), self.bits, number), template, {}
        else:
            target = join(template, record)
            if not np.array_equal(target, join(template, self._record)):
                self._log.advance(target)
        return self._hold(template, self._log, _others(template, record))

    def advance(self, template: Template, record: ArrayRecord) -> ArrayRecord:
        """Round the strategy's model, in its own record: a strategy that has kept it goes on from the rounded one."""
        if self._log is None or template != self._template or list(record) != [slot.name for slot in template.slots]:
            return template.cast(record)  # Another shape: `offer` begins anew with it.
        others = _others(template, template.cast(record))
        self._log.advance(join(template, record))
        rounded = self._hold(template, self._log, others)
        for name, array in rounded.items():
            record[name] = array
        return rounded

    def _hold(self, template: Template, log: StepLog, others: Mapping[str, Array]) -> ArrayRecord:
        self._record = rebuild(template, log.model, others)
        return self._record

    def parcel(self, node: int, content: RecordDict) -> tuple[RecordDict, dict[str, Value], int]:
        """Return steps where the node holds a model that they lead from and they are smaller, else the whole model."""
        assert self._log is not None and self._template is not None  # noqa: S101  # `offer` comes first.
        key, model = _model_of(content)
        held, whole = self._held.get(node), _data_bytes(model.values())
        if held is not None and held >= self._log.oldest:
            steps = steps_record(self._log.for_node(held), _others(self._template, model))
            if (size := _data_bytes(steps.values())) < whole:
                return RecordDict({**content, key: steps}), {}, size
        return content, {NUMBER: self._log.sequence}, whole

    def heard(self, node: int, held: object) -> None:
        """Note that a node has kept the model that it was sent; it can't have kept another one."""
        if self._log is not None and held == self._log.sequence:
            self._held[node] = self._log.sequence
        else:
            self._held.pop(node, None)

    def lost(self, node: int) -> None:
        """Forget what a node holds: it gets the whole model next time."""
        self._held.pop(node, None)

    def save(self) -> bytes:
        """Return the log, its kept rounding error included, and which model each node has kept."""
        return b"" if self._log is None else msgspec.msgpack.encode((self._log.save(), self._held))

    def restore(self, state: bytes, model: ArrayRecord) -> None:
        """Go back to what `save` returned; without it the model that is given begins a new log."""
        if not state:
            return
        try:
            log, held = msgspec.msgpack.decode(state, type=tuple[bytes, dict[int, int]])
        except msgspec.MsgspecError:
            raise MalformedMessage("the bytes are not a saved way down") from None
        self._log, self._template, self._held, self._record = StepLog.restore(log), Template.of(model), held, model


def make_way_down(downlink: str | None, bits: int) -> WayDown:
    """Return the way down that the options name, the default for None."""
    downlink = DEFAULT if downlink is None else downlink
    if downlink not in DOWNLINKS:
        raise InvalidInput("downlink", f"must be {' or '.join(DOWNLINKS)}, got {downlink!r}")
    if bits not in (2, 4, 8):
        raise InvalidInput("downlink_bits", f"must be 2, 4 or 8, got {bits!r}")
    return StepsDown(bits) if downlink == "steps" else WayDown()


def _model_of(content: RecordDict) -> tuple[str, ArrayRecord]:
    return next(iter(content.array_records.items()))


def _others(template: Template, record: ArrayRecord) -> dict[str, Array]:
    """Return the arrays that have no steps."""
    return {slot.name: record[slot.name] for slot in template.slots if not slot.size}


def _data_bytes(arrays: Any) -> int:
    """Return the bytes of the values; what Flower and NumPy frame them with comes on top."""
    return sum(view(array).nbytes if array.stype == "numpy.ndarray" else len(array.data) for array in arrays)
