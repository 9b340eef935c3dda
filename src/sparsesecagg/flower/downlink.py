"""How nodes get the model: whole, or as steps from the one that they hold. Both sides.

With steps the rounded model *is* the model: what the wrapped strategy returns is rounded (the error is kept for the
next step), and Flower, evaluation and nodes all go on from the same bits. A node says which model it has kept; who is
behind gets the steps that it lacks or the whole model, whichever is smaller, and who refused gets the whole one.

A model travels as the ArrayRecord that the strategy made, or as one array of bytes that holds steps, beside the arrays
that have no steps (integers and truth values, which stay as they are). Either way the node ends up with the very
record that the server has: names, types, shapes and every bit.

A node keeps models in files of a folder beside its ledger. Each is named by the digest of what it holds, and read by
it: whatever a step starts from is looked for, checked bit for bit, and moved on. So it does not matter which process
wrote it, and in a simulation all nodes share one file. A file that is missing or damaged costs one whole model, nothing
else. Models are no secret between server and node.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from sparsesecagg.downlink import STEP_BITS, Replica, Spread, StepLog, Steps, decode_catchup
from sparsesecagg.downlink.vector import Vector
from sparsesecagg.errors import InvalidInput, MalformedMessage, SparseSecAggError
from sparsesecagg.files import write_atomically
from sparsesecagg.flower.arrays import Slot, Template, view
from sparsesecagg.flower.errors import NoModel
from sparsesecagg.flower.records import STYPE, Packet, Value

WHOLE = 32
STEPS = "secagg-steps"
"""The name of the array that holds steps."""
NUMBER = "model"
"""The control record's entry that numbers a whole model, so that steps can follow it."""
HELD = "held"
"""The reply's entry that says which model the node has kept."""

_LOG = logging.getLogger("flwr")
_KEPT = 4
"""Models per folder: the last one, and some for nodes that are behind in a simulation."""
_OLDEST = 7 * 24 * 3600.0
_SUFFIX = ".model"
_LONGEST_HEAD = 1 << 24


# What both sides need


def join(template: Template, record: ArrayRecord) -> Vector:
    """Return a model's floating-point arrays as the vector that steps are made of."""
    with np.errstate(over="ignore"):  # What float32 can't hold becomes infinite, and is refused as such.
        return Spread(template.sizes).join([view(record[slot.name]) for slot in template.travelling])


def rebuild(template: Template, vector: Vector, others: Mapping[str, Array]) -> ArrayRecord:
    """Return the model in a vector, with the arrays that have no steps as they are; raises KeyError if one is missing.

    Types are those of the template. float64 and float16 are made of float32, on both sides alike.
    """
    parts = iter(Spread(template.sizes).split(vector))
    return ArrayRecord(
        {
            slot.name: Array(np.asarray(next(parts).reshape(slot.shape).astype(slot.dtype)))
            if slot.size
            else others[slot.name]
            for slot in template.slots
        }
    )


def _model_of(content: RecordDict) -> tuple[str, ArrayRecord]:
    return next(iter(content.array_records.items()))


def _others(template: Template, record: ArrayRecord) -> dict[str, Array]:
    """Return the arrays that have no steps."""
    return {slot.name: record[slot.name] for slot in template.slots if not slot.size}


def _data_bytes(arrays: Any) -> int:
    """Return the bytes of the values; what Flower and NumPy frame them with comes on top."""
    return sum(view(array).nbytes if array.stype == "numpy.ndarray" else len(array.data) for array in arrays)


# The server's side


class Downlink:
    """Whole models, in every message."""

    def publish(self, record: ArrayRecord) -> ArrayRecord:
        """Return the model that nodes are to train on where the strategy wants to send this one."""
        return record

    def advance(self, template: Template, record: ArrayRecord) -> ArrayRecord:
        """Return the model that follows a round, given what the strategy made of the mean."""
        return template.cast(record)

    def message_for(self, node: int, content: RecordDict) -> tuple[RecordDict, dict[str, Value], int]:
        """Return what a node is sent instead of the strategy's content, entries for the control record, and bytes."""
        del node
        return content, {}, _data_bytes(_model_of(content)[1].values())

    def acknowledge(self, node: int, held: object) -> None:
        """Note which model a node says that it has kept."""

    def lost(self, node: int) -> None:
        """Note that a node could not use what it was sent."""

    def save(self) -> bytes:
        """Return what the next rounds depend on, beside the model."""
        return b""

    def restore(self, state: bytes, model: ArrayRecord) -> None:
        """Go back to what `save` returned, with the model of that time; raises `MalformedMessage` for other bytes."""


class StepsDown(Downlink):
    """Steps of `bits` bits per coordinate."""

    def __init__(self, bits: int = 4) -> None:
        self.bits = bits
        self._log: StepLog | None = None
        self._template: Template | None = None
        self._record = ArrayRecord()
        """The model as nodes hold it."""
        self._held: dict[int, int] = {}
        """By node: the number of the model that it has kept."""

    def publish(self, record: ArrayRecord) -> ArrayRecord:
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
            return template.cast(record)  # Another shape: `publish` begins anew with it.
        others = _others(template, template.cast(record))
        self._log.advance(join(template, record))
        rounded = self._hold(template, self._log, others)
        for name, array in rounded.items():
            record[name] = array
        return rounded

    def _hold(self, template: Template, log: StepLog, others: Mapping[str, Array]) -> ArrayRecord:
        self._record = rebuild(template, log.model, others)
        return self._record

    def message_for(self, node: int, content: RecordDict) -> tuple[RecordDict, dict[str, Value], int]:
        """Return steps where the node holds a model that they lead from and they are smaller, else the whole model."""
        key, model = _model_of(content)
        held, whole = self._held.get(node), _data_bytes(model.values())
        if self._log is None or self._template is None:
            return content, {}, whole  # Nothing was published, so nobody holds anything.
        if held is not None and held >= self._log.oldest:
            data = self._log.for_node(held)
            carried = Array("uint8", (len(data),), STYPE, data)
            steps = ArrayRecord({STEPS: carried, **_others(self._template, model)})
            if (size := _data_bytes(steps.values())) < whole:
                return RecordDict({**content, key: steps}), {}, size
        return content, {NUMBER: self._log.sequence}, whole

    def acknowledge(self, node: int, held: object) -> None:
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
            raise MalformedMessage("the bytes are not a saved downlink") from None
        self._log, self._template, self._held, self._record = StepLog.restore(log), Template.of(model), held, model


def make_downlink(bits: int) -> Downlink:
    """Return the way down with so many bits per coordinate; 32 are whole models."""
    if bits not in (*STEP_BITS, WHOLE):
        raise InvalidInput("downlink_bits", f"must be 2, 4 or 8, or 32 for whole models, got {bits!r}")
    return Downlink() if bits == WHOLE else StepsDown(bits)


# The node's side


@dataclass(frozen=True)
class Held:
    """A model that a node holds, as the vector that steps are made of and as the arrays that it stands for."""

    template: Template
    replica: Replica

    def encode(self) -> bytes:
        """Return the content of a file: the layout in one line, then the replica."""
        slots = [(slot.name, slot.dtype.str, slot.shape, bool(slot.size)) for slot in self.template.slots]
        return json.dumps(slots).encode() + b"\n" + self.replica.save()

    @staticmethod
    def decode(data: bytes) -> Held:
        """Read a file; raises `MalformedMessage` if it is damaged."""
        end = data.find(b"\n", 0, _LONGEST_HEAD)
        try:
            slots: list[Slot] = []
            start = 0
            for name, dtype, shape, travels in json.loads(data[:end]):
                size = prod(shape) if travels else 0
                slots.append(Slot(name, np.dtype(dtype), tuple(shape), start, size))
                start += size
        except (ValueError, TypeError):
            raise MalformedMessage("the file of a model has no layout") from None
        return Held(Template(tuple(slots)), Replica.restore(data[end + 1 :]))


class Replicas:
    """The models in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def receive(self, content: RecordDict, packet: Packet) -> tuple[RecordDict, Held | None]:
        """Return the content with the model in it, rebuilt if steps came in its place, and what to keep of it.

        Raises `WrongStep`, `MissingStep`, `NoModel` or `MalformedMessage` for what leads nowhere.
        """
        records = list(content.array_records.items())
        if len(records) != 1:
            return content, None  # Refused where the model is read.
        key, record = records[0]
        if STEPS not in record:
            if NUMBER not in packet.fields:
                return content, None
            template = Template.of(record)
            return content, Held(template, Replica(join(template, record), packet.int_field(NUMBER)))
        carried = record[STEPS]
        if carried.stype != STYPE:
            raise MalformedMessage("the steps are not bytes")
        steps = decode_catchup(carried.data)
        if not isinstance(steps, Steps):
            raise MalformedMessage("a whole model came in place of steps")
        held = self._leading_to(steps)
        held.replica.catch_up(carried.data)
        try:
            rebuilt = rebuild(held.template, held.replica.model, record)
        except KeyError as missing:
            raise MalformedMessage(f"the array {missing} has no steps and did not come with them") from None
        return RecordDict({name: rebuilt if name == key else each for name, each in content.items()}), held

    def keep(self, held: Held) -> bool:
        """Write a model down; return whether it is there now."""
        path = self.folder / (held.replica.digest.hex() + _SUFFIX)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.exists():
                os.utime(path)
                return True
            write_atomically(path, held.encode(), private=True)
            self._forget()
        except OSError as problem:
            _LOG.warning("secagg_mod: the model can't be kept, so it comes whole: %s", problem.strerror)
            return False
        return True

    def _leading_to(self, steps: Steps) -> Held:
        """Return the latest model that these steps lead from, or lead to."""
        names = [steps.digest.hex(), *(step.digest_before.hex() for step in reversed(steps.steps))]
        for name in names:
            for path in self.folder.glob(f"{name}*{_SUFFIX}"):
                try:
                    held = Held.decode(path.read_bytes())
                    os.utime(path)
                except (OSError, SparseSecAggError):
                    with suppress(OSError):
                        path.unlink()  # Damaged: the whole model takes its place.
                else:
                    return held
        raise NoModel

    def _forget(self) -> None:
        """Remove what no step will start from."""
        found: list[tuple[float, Path]] = []
        for path in self.folder.iterdir():
            with suppress(OSError):  # Another process may be tidying up as well.
                found.append((path.stat().st_mtime, path))
        for place, (touched, path) in enumerate(sorted(found, reverse=True)):
            if place >= _KEPT or touched < time.time() - _OLDEST:
                with suppress(OSError):
                    path.unlink()
