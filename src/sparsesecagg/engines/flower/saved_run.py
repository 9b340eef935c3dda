"""A run in a folder: what a server that was ended in the middle needs to go on.

Two files, each replaced as a whole. `model.state` is written after every round: the model, the steps that led to it,
and how many rounds are done. `run.state` is written as a round begins and again when its survivors are declared, before
any node opens anything: nodes that have helped to open a round demand to see it declared. A round that was under way is
lost, and its number with it. Nothing in either file is a secret of a node. A run that is over leaves neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Result

from sparsesecagg.errors import InvalidInput
from sparsesecagg.files import write_atomically

_VERSION = 1
_MODEL, _RUN = "model.state", "run.state"


class ModelState(msgspec.Struct, frozen=True, array_like=True):
    """The model between two rounds."""

    version: int
    round_number: int
    """Flower's number of the last round that is done."""
    arrays: list[tuple[str, str, list[int], str, bytes]]
    clips: tuple[list[float], list[int], list[float]]
    way_down: bytes = b""

    @property
    def record(self) -> ArrayRecord:
        """The model."""
        return ArrayRecord(
            {name: Array(dtype, tuple(shape), stype, data) for name, dtype, shape, stype, data in self.arrays}
        )


class RunState(msgspec.Struct, frozen=True, array_like=True):
    """One run of the protocol."""

    version: int
    server: bytes
    """The protocol's `Server`, as it saves itself."""
    begun: int
    """The protocol's number of the last round that was begun."""
    epoch_number: int
    seats: list[tuple[int, int]]
    """Users and their nodes."""
    run_config: bytes


@dataclass(frozen=True)
class SavedRun:
    """The files of a run in its folder."""

    folder: Path

    def write_model(
        self, round_number: int, model: ArrayRecord, clips: tuple[list[float], list[int], list[float]], way_down: bytes
    ) -> None:
        """Write the model down after a round."""
        arrays = [(name, each.dtype, list(each.shape), each.stype, each.data) for name, each in model.items()]
        state = ModelState(_VERSION, round_number, arrays, clips, way_down)
        self._write(_MODEL, msgspec.msgpack.encode(state))

    def write_run(
        self, server: bytes, begun: int, epoch_number: int, seats: list[tuple[int, int]], run_config: bytes
    ) -> None:
        """Write the protocol's run down."""
        state = RunState(_VERSION, server, begun, epoch_number, seats, run_config)
        self._write(_RUN, msgspec.msgpack.encode(state))

    def model(self) -> ModelState | None:
        """Return the model of a run that is not over; None if there is none. A damaged file is an error."""
        try:
            data = (self.folder / _MODEL).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise InvalidInput("run_dir", f"holds a run that can't be read: {problem.strerror}") from None
        try:
            state = msgspec.msgpack.decode(data, type=ModelState)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            state = None
        if state is None or state.version != _VERSION:
            raise InvalidInput("run_dir", f"holds a damaged {_MODEL}: remove it to begin anew, or name another folder")
        return state

    def run(self) -> RunState | None:
        """Return the protocol's run; None if there is none that can be read."""
        try:
            state = msgspec.msgpack.decode((self.folder / _RUN).read_bytes(), type=RunState)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return state if state.version == _VERSION else None

    def remove(self) -> None:
        """Forget the run: it is over."""
        for name in (_MODEL, _RUN):
            (self.folder / name).unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        """Write a file as a whole or not at all, on disk when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, data, private=True)


def number_rounds(result: Result, before: int) -> None:
    """Give a result the numbers of the whole run, where earlier rounds were another process's."""
    for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
        setattr(result, name, {number + before: metrics for number, metrics in getattr(result, name).items()})
