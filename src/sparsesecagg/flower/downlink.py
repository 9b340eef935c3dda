"""How nodes get the model: whole, or as steps from the one that they hold.

With steps the rounded model *is* the model: what the wrapped strategy returns is rounded (the error is kept for the
next step), and Flower, evaluation and nodes all go on from the same bits. A node says which model it has kept; who is
behind gets the steps that it lacks or the whole model, whichever is smaller, and who refused gets the whole one.

A model travels as the ArrayRecord that the strategy made, or as one array of bytes that holds steps, beside the arrays
that have none: integers and truth values, which stay as they are, and the few that every round sends whole. Either way
the node ends up with the very record that the server has: names, types, shapes and every bit. A round changes a part of
the coordinates, which lie close together in a step, so it costs that part.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.downlink import STEP_BITS, Replica, Spread, StepLog, Steps, decode_catchup
from sparsesecagg.downlink.vector import Vector
from sparsesecagg.errors import InvalidInput, MalformedMessage, SparseSecAggError, WrongStep, require
from sparsesecagg.files import write_atomically
from sparsesecagg.flower.arrays import Slot, Template, view
from sparsesecagg.flower.messages import STYPE, Packet
from sparsesecagg.flower.packing import Packing
from sparsesecagg.patterns.sliced import turns_of

_LOG = logging.getLogger("flwr")
WHOLE = 32
STEPS = "secagg-steps"
"""The name of the array that holds steps."""
_REARRANGED = 8
"""A new epoch changes other coordinates together. After so many steps a whole model costs less than to ignore that."""
_KEPT, _RUNS = 4, 4
"""Models of each run that a folder keeps: the last one, and some for nodes that are behind in a simulation. Runs."""
_SUFFIX = ".model"


def _data_bytes(arrays: Iterable[Array]) -> int:
    """Return the bytes of the values; what Flower and NumPy frame them with comes on top."""
    return sum(view(array).nbytes if array.stype == "numpy.ndarray" else len(array.data) for array in arrays)


# Where a model's coordinates lie in steps


class Order(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which arrays of a model have steps, and which of their coordinates change together. The server's to say."""

    seed: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    block: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    stepped: tuple[int, ...]
    """Places among the arrays of the model."""

    def encode(self) -> bytes:
        """Return the order as bytes."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> Order:
        """Read an order; raises `MalformedMessage`."""
        try:
            return msgspec.msgpack.decode(data, type=Order)
        except ValueError:  # msgspec's errors are ValueErrors.
            raise MalformedMessage("the bytes do not say how a model is arranged in steps") from None


@dataclass(frozen=True)
class Arrangement:
    """Where the arrays of a model lie in steps. How a model travels, and nothing that it means, follows from it."""

    template: Template
    order: Order
    stepped: tuple[Slot, ...] = field(init=False)
    spread: Spread = field(init=False, compare=False)

    def __post_init__(self) -> None:
        slots = self.template.slots
        if not all(0 <= place < len(slots) and slots[place].size for place in self.order.stepped):
            raise MalformedMessage("steps are announced for an array that has none")
        stepped = tuple(slots[place] for place in sorted(set(self.order.stepped)))
        sizes = [slot.size for slot in stepped]
        object.__setattr__(self, "stepped", stepped)
        object.__setattr__(self, "spread", Spread(sizes, turns_of(self.order.seed, sum(sizes), self.order.block)))

    @staticmethod
    def of(packing: Packing, seed: bytes) -> Arrangement:
        """Return the arrangement for an epoch of a run."""
        names = {slot.name for slot in packing.sliced}
        stepped = tuple(place for place, slot in enumerate(packing.template.slots) if slot.name in names)
        return Arrangement(packing.template, Order(seed, packing.block, stepped))

    def join(self, record: ArrayRecord) -> Vector:
        """Return a model's arrays as the vector that steps are made of."""
        with np.errstate(over="ignore"):  # What float32 can't hold becomes infinite, and is refused as such.
            return self.spread.join([view(record[slot.name]) for slot in self.stepped])

    def others(self, record: ArrayRecord) -> dict[str, Array]:
        """Return the arrays that have no steps."""
        stepped = {slot.name for slot in self.stepped}
        return {slot.name: record[slot.name] for slot in self.template.slots if slot.name not in stepped}

    def rebuild(self, vector: Vector, others: Mapping[str, Array]) -> ArrayRecord:
        """Return the model in a vector, beside the arrays that have no steps; raises KeyError if one is missing.

        Types are those of the template. float64 and float16 are made of float32, on both sides alike.
        """
        parts = zip(self.stepped, self.spread.split(vector), strict=True)
        rebuilt = {slot.name: Array(np.asarray(part.reshape(slot.shape).astype(slot.dtype))) for slot, part in parts}
        names = [slot.name for slot in self.template.slots]
        return ArrayRecord({name: rebuilt[name] if name in rebuilt else others[name] for name in names})


# The server's side


class Downlink:
    """Steps of `bits` bits per coordinate; with 32, whole models in every message."""

    def __init__(self, bits: int = 4) -> None:
        if bits not in (*STEP_BITS, WHOLE):
            raise InvalidInput("downlink_bits", f"must be 2, 4 or 8, or 32 for whole models, got {bits!r}")
        self.bits = bits
        self._log: StepLog | None = None
        self._arrangement: Arrangement | None = None
        self._first = 0
        """The number of the first model in this arrangement."""
        self._record = ArrayRecord()
        """The model as nodes hold it."""
        self._held: dict[int, int] = {}
        """By node: the number of the model that it has kept."""

    def publish(self, record: ArrayRecord, packing: Packing, seed: bytes) -> ArrayRecord:
        """Return the model that nodes are to train on where the strategy wants to send this one: rounded, in steps."""
        if self.bits == WHOLE:
            return record
        arrangement, log = Arrangement.of(packing, seed), self._log
        if log is None or self._arrangement is None or self._outdated(arrangement, self._arrangement, log):
            # Numbers go on, so that a node can't take a model of another shape for the one before.
            self._first = log.sequence + 1 if log else 0
            self._log = log = StepLog(arrangement.join(record), self.bits, self._first)
            self._arrangement, self._held = arrangement, {}
        elif record is self._record:
            return record
        else:
            arrangement, target = self._arrangement, self._arrangement.join(record)
            if not np.array_equal(target, arrangement.join(self._record)):
                log.advance(target)
        self._record = arrangement.rebuild(log.model, arrangement.others(record))
        return self._record

    def _outdated(self, now: Arrangement, before: Arrangement, log: StepLog) -> bool:
        if now.template != before.template or now.order.stepped != before.order.stepped:
            return True
        return now.order != before.order and (not self._held or log.sequence - self._first >= _REARRANGED)

    def advance(self, template: Template, record: ArrayRecord) -> ArrayRecord:
        """Return the model that follows a round, given what the strategy made of the mean.

        It is rounded in the strategy's own record: a strategy that has kept it goes on from the rounded one.
        """
        arrangement, names = self._arrangement, [slot.name for slot in template.slots]
        if self._log is None or arrangement is None or template != arrangement.template or list(record) != names:
            return template.cast(record)  # Another shape: `publish` begins anew with it.
        others = arrangement.others(template.cast(record))
        require("model", all(np.isfinite(view(array)).all() for array in others.values()), "must be finite")
        self._log.advance(arrangement.join(record))
        self._record = arrangement.rebuild(self._log.model, others)
        for name, array in self._record.items():
            record[name] = array
        return self._record

    def message_for(self, node: int, content: RecordDict) -> tuple[RecordDict, dict[str, Any], int]:
        """Return what a node is sent instead of the strategy's content, entries of the packet, and bytes.

        Steps where the node holds a model that they lead from and they are smaller, else the whole model.
        """
        key, model = next(iter(content.array_records.items()))
        held, whole = self._held.get(node), _data_bytes(model.values())
        if self._log is None or self._arrangement is None:
            return content, {}, whole
        order = self._arrangement.order.encode()
        if held is not None and held >= self._log.oldest:
            data = self._log.for_node(held)
            carried = Array("uint8", (len(data),), STYPE, data)
            steps = ArrayRecord({STEPS: carried, **self._arrangement.others(model)})
            if (size := _data_bytes(steps.values())) < whole:
                return RecordDict({**content, key: steps}), {"order": order}, size
        return content, {"model": self._log.sequence, "order": order}, whole

    def acknowledge(self, node: int, held: int | None) -> None:
        """Note that a node has kept the model that it was sent; it can't have kept another one."""
        if self._log is not None and held == self._log.sequence:
            self._held[node] = self._log.sequence
        else:
            self._held.pop(node, None)

    def save(self) -> bytes:
        """Return the log, its kept rounding error included, and which model each node has kept."""
        if self._log is None or self._arrangement is None:
            return b""
        return msgspec.msgpack.encode((self._log.save(), self._arrangement.order, self._first, self._held))

    def restore(self, state: bytes, model: ArrayRecord) -> None:
        """Go back to what `save` returned; without it, or with other bits, the next model begins a new log."""
        if not state or self.bits == WHOLE:
            return
        try:
            log, order, first, held = msgspec.msgpack.decode(state, type=tuple[bytes, Order, int, dict[int, int]])
        except msgspec.MsgspecError:
            raise MalformedMessage("the bytes are not a saved downlink") from None
        steps, arrangement = StepLog.restore(log), Arrangement(Template.of(model), order)
        if steps.bits != self.bits:
            return
        if len(steps.model) != len(arrangement.join(model)):
            raise MalformedMessage("the steps of a saved downlink are those of another model")
        self._log, self._arrangement = steps, arrangement
        self._first, self._held = first, held
        # What the log's steps lead to: `model` may be the one before it was rounded.
        self._record = self._arrangement.rebuild(self._log.model, self._arrangement.others(model))


# The node's side
#
# Each model is in a file that is named by the digest of what it holds, and read by it: whatever a step starts from is
# looked for, checked bit for bit, and moved on. So it does not matter which process wrote it, and in a simulation all
# nodes share one file. A file that is missing or damaged costs one whole model, and models are no secret.


@dataclass(frozen=True)
class Held:
    """A model that a node holds, as the vector that steps are made of and as the arrays that it stands for."""

    arrangement: Arrangement
    replica: Replica

    @property
    def name(self) -> str:
        """The name of its file: models in different orders differ, and so do equal ones with different numbers."""
        return f"{self.replica.digest.hex()}-{self.replica.sequence}-{_name(self.arrangement.order)}{_SUFFIX}"

    def encode(self) -> bytes:
        """Return the content of a file."""
        layout = [(slot.name, slot.dtype.str, slot.shape) for slot in self.arrangement.template.slots]
        return msgspec.msgpack.encode((self.arrangement.order, layout, self.replica.save()))

    @staticmethod
    def decode(data: bytes) -> Held:
        """Read a file; raises `MalformedMessage` if it is damaged."""
        try:
            order, layout, replica = msgspec.msgpack.decode(data, type=_File)
            template = Template.laid_out((name, np.dtype(dtype), shape) for name, dtype, shape in layout)
        except (msgspec.MsgspecError, ValueError, TypeError):
            raise MalformedMessage("the file of a model is damaged") from None
        return Held(Arrangement(template, order), Replica.restore(replica))


_Type = Annotated[str, msgspec.Meta(pattern=r"^[<>|][fiub]\d{1,2}$")]
_Length = Annotated[int, msgspec.Meta(ge=0)]
_File = tuple[Order, list[tuple[str, _Type, tuple[_Length, ...]]], bytes]


def _name(order: Order) -> str:
    return digest("order", order.encode())[:8].hex()


@dataclass(frozen=True)
class Replicas:
    """The models in a folder."""

    folder: Path

    def receive(self, content: RecordDict, packet: Packet) -> tuple[RecordDict, Held | None]:
        """Return the content with the model in it, rebuilt if steps came in its place, and what to keep of it.

        Raises `WrongStep` or `MalformedMessage` for what leads nowhere.
        """
        records = list(content.array_records.items())
        if len(records) != 1:
            return content, None  # Refused where the model is read.
        key, record = records[0]
        if STEPS not in record:
            if packet.model is None:
                return content, None
            arrangement = Arrangement(Template.of(record), Order.decode(packet.need("order")))
            return content, Held(arrangement, Replica(arrangement.join(record), packet.model))
        carried = record[STEPS]
        if carried.stype != STYPE:
            raise MalformedMessage("the steps are not bytes")
        steps = decode_catchup(carried.data)
        if not isinstance(steps, Steps):
            raise MalformedMessage("a whole model came in place of steps")
        held = self._leading_to(steps, Order.decode(packet.need("order")))
        held.replica.catch_up(carried.data)
        try:
            rebuilt = held.arrangement.rebuild(held.replica.model, record)
        except KeyError as missing:
            raise MalformedMessage(f"the array {missing} has no steps and did not come with them") from None
        return RecordDict({name: rebuilt if name == key else each for name, each in content.items()}), held

    def keep(self, held: Held) -> bool:
        """Write a model down; return whether it is there now."""
        path = self.folder / held.name
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

    def _leading_to(self, steps: Steps, order: Order) -> Held:
        """Return the latest model that these steps lead from, or lead to."""
        names = [(steps.digest, steps.sequence)]
        names += [(step.digest_before, step.before) for step in reversed(steps.steps)]
        for digest_, sequence in names:
            for path in self.folder.glob(f"{digest_.hex()}*-{sequence}-{_name(order)}{_SUFFIX}"):
                try:
                    held = Held.decode(path.read_bytes())
                    os.utime(path)
                except (OSError, SparseSecAggError):
                    with suppress(OSError):
                        path.unlink()  # Damaged: the whole model takes its place.
                else:
                    return held
        raise WrongStep("this node holds none of the models that it starts from, and needs the whole one")

    def _forget(self) -> None:
        """Remove what no step will start from. A quick run must not take the models of a slow one."""
        kept: Counter[str] = Counter()
        with suppress(FileNotFoundError):  # Another process is tidying up as well.
            for path in sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
                order = path.name.rpartition("-")[2]
                if kept[order] < _KEPT and (order in kept or len(kept) < _RUNS):
                    kept[order] += 1
                else:
                    path.unlink()
