"""The models that a node has kept, so that steps can follow: files in a folder of its own, beside its ledger.

Each file is named by the digest of what it holds, and read by it: whatever a step starts from is looked for, checked
bit for bit, and moved on. So it does not matter which process wrote it, and in a simulation all nodes share one file. A
file that is missing or damaged costs one whole model, nothing else. Models are no secret between server and node.
"""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from flwr.app import RecordDict

from sparsesecagg.downlink import Replica, Steps, decode_catchup
from sparsesecagg.engines.flower.arrays import Slot, Template
from sparsesecagg.engines.flower.errors import NoModel
from sparsesecagg.engines.flower.records import STYPE, Packet
from sparsesecagg.engines.flower.steps import NUMBER, STEPS, join, rebuild
from sparsesecagg.errors import MalformedMessage, SparseSecAggError
from sparsesecagg.files import write_atomically

_LOG = logging.getLogger("flwr")
_KEPT = 4
"""Models per folder: the last one, and some for nodes that are behind in a simulation."""
_OLDEST = 7 * 24 * 3600.0
_SUFFIX = ".model"
_LONGEST_HEAD = 1 << 24


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
