"""What a node keeps in files beside its ledger: models that steps lead from, and an update that was not sent yet.

Each model is named by the digest of what it holds, and read by it: whatever a step starts from is looked for, checked
bit for bit, and moved on. So it does not matter which process wrote it, and in a simulation all nodes share one file. A
file that is missing or damaged costs one whole model, nothing else. Models are no secret between server and node.

An update is what a node has trained in a round that finds ranges, for the round after it, which sends it. Its file is
named by the digest of all that the app was told, private, and read once. If it is gone, the node trains again.
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

import msgspec
import numpy as np
from flwr.app import ArrayRecord, RecordDict

from sparsesecagg.downlink import Replica, Steps, decode_catchup
from sparsesecagg.errors import MalformedMessage, SparseSecAggError
from sparsesecagg.files import write_atomically
from sparsesecagg.flower.arrays import SavedArrays, Slot, Template, saved_arrays, written_arrays
from sparsesecagg.flower.downlink import NUMBER, ORDER, STEPS, Arrangement, Order
from sparsesecagg.flower.errors import NoModel
from sparsesecagg.flower.records import STYPE, Packet

_LOG = logging.getLogger("flwr")
_KEPT = 4
"""Models per folder: the last one, and some for nodes that are behind in a simulation."""
_OLDEST = 7 * 24 * 3600.0
_SUFFIX, _UPDATE = ".model", ".update"
_LONGEST_HEAD = 1 << 24


@dataclass(frozen=True)
class Held:
    """A model that a node holds, as the vector that steps are made of and as the arrays that it stands for."""

    arrangement: Arrangement
    replica: Replica

    def encode(self) -> bytes:
        """Return the content of a file: the layout in one line, then the replica."""
        template, order = self.arrangement.template, self.arrangement.order.encode().hex()
        slots = [(slot.name, slot.dtype.str, slot.shape, bool(slot.size)) for slot in template.slots]
        return json.dumps([order, slots]).encode() + b"\n" + self.replica.save()

    @staticmethod
    def decode(data: bytes) -> Held:
        """Read a file; raises `MalformedMessage` if it is damaged."""
        end = data.find(b"\n", 0, _LONGEST_HEAD)
        try:
            slots: list[Slot] = []
            start = 0
            order, layout = json.loads(data[:end])
            for name, dtype, shape, travels in layout:
                size = prod(shape) if travels else 0
                slots.append(Slot(name, np.dtype(dtype), tuple(shape), start, size))
                start += size
            arrangement = Arrangement(Template(tuple(slots)), Order.decode(bytes.fromhex(order)))
        except (ValueError, TypeError):
            raise MalformedMessage("the file of a model has no layout") from None
        return Held(arrangement, Replica.restore(data[end + 1 :]))


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
            arrangement = Arrangement(Template.of(record), Order.decode(packet.bytes_field(ORDER)))
            return content, Held(arrangement, Replica(arrangement.join(record), packet.int_field(NUMBER)))
        carried = record[STEPS]
        if carried.stype != STYPE:
            raise MalformedMessage("the steps are not bytes")
        steps = decode_catchup(carried.data)
        if not isinstance(steps, Steps):
            raise MalformedMessage("a whole model came in place of steps")
        held = self._leading_to(steps, Order.decode(packet.bytes_field(ORDER)))
        held.replica.catch_up(carried.data)
        try:
            rebuilt = held.arrangement.rebuild(held.replica.model, record)
        except KeyError as missing:
            raise MalformedMessage(f"the array {missing} has no steps and did not come with them") from None
        return RecordDict({name: rebuilt if name == key else each for name, each in content.items()}), held

    def keep(self, held: Held) -> bool:
        """Write a model down; return whether it is there now."""
        path = self.folder / f"{held.replica.digest.hex()}-{held.arrangement.order.name}{_SUFFIX}"
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
        names = [steps.digest.hex(), *(step.digest_before.hex() for step in reversed(steps.steps))]
        for name in names:
            for path in self.folder.glob(f"{name}*-{order.name}{_SUFFIX}"):
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


class KeptUpdate:
    """The trained model and the metrics of one round."""

    def __init__(self, folder: Path, context: bytes) -> None:
        self._path = folder / (context.hex() + _UPDATE)

    def keep(self, trained: ArrayRecord, metrics: Mapping[str, object]) -> None:
        """Write them down."""
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        try:
            write_atomically(self._path, msgspec.msgpack.encode((written_arrays(trained), numbers)), private=True)
        except OSError as problem:
            _LOG.warning("secagg_mod: an update can't be kept, so the app trains again: %s", problem.strerror)

    def take(self) -> tuple[ArrayRecord, Mapping[str, object]] | None:
        """Return what was kept for this round, and remove it with everything else that was kept."""
        found: tuple[ArrayRecord, Mapping[str, object]] | None = None
        with suppress(OSError, msgspec.MsgspecError):
            content: tuple[SavedArrays, dict[str, float]] = msgspec.msgpack.decode(
                self._path.read_bytes(), type=tuple[SavedArrays, dict[str, float]]
            )
            found = ArrayRecord(saved_arrays(content[0])), content[1]
        for path in self._path.parent.glob("*" + _UPDATE):
            with suppress(OSError):
                path.unlink()
        return found
