"""What a server that is started again needs, in two files of the run folder, each replaced as a whole.

`model.state` is written after every round: the model, the steps that led to it, ranges and gain, what the wrapped
strategy remembers, and how many rounds are done. `run.state` is written as a round begins: the protocol's run. A round
that was under way is lost, and its number with it. Nothing in either file is a secret of a node. A run that is over
leaves neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Result, Strategy

from sparsesecagg.errors import InvalidInput
from sparsesecagg.files import write_atomically
from sparsesecagg.flower.arrays import SavedArrays, saved_arrays, written_arrays

_VERSION = 3
_MODEL, _RUN = "model.state", "run.state"


class ModelState(msgspec.Struct, frozen=True, array_like=True):
    """The model between two rounds."""

    version: int
    round_number: int
    """Flower's number of the last round that is done."""
    arrays: SavedArrays
    movement: bytes
    memory: dict[str, tuple[bool, SavedArrays]]
    """Of the wrapped strategy, by attribute: whether it is a list, and its arrays."""

    @staticmethod
    def of(round_number: int, model: ArrayRecord, movement: bytes, strategy: Strategy) -> ModelState:
        """Return what is to be written after a round."""
        return ModelState(_VERSION, round_number, written_arrays(model), movement, _memory(strategy))

    @property
    def record(self) -> ArrayRecord:
        """The model."""
        return ArrayRecord(saved_arrays(self.arrays))

    def remind(self, strategy: Strategy) -> None:
        """Give a strategy back what it remembered."""
        for name, (is_list, arrays) in self.memory.items():
            found = {key: each.numpy() for key, each in saved_arrays(arrays).items()}
            setattr(strategy, name, list(found.values()) if is_list else found)


def _memory(strategy: Strategy) -> dict[str, tuple[bool, SavedArrays]]:
    """Return what a strategy keeps from round to round: its attributes that hold arrays, such as moments."""
    memory: dict[str, tuple[bool, SavedArrays]] = {}
    for name, value in vars(strategy).items():
        named: Mapping[Any, Any] = value if isinstance(value, dict) else {}
        if isinstance(value, list):
            named = dict(enumerate(value))
        if named and all(isinstance(each, np.ndarray) for each in named.values()):
            arrays = written_arrays({str(key): Array(each) for key, each in named.items()})
            memory[name] = isinstance(value, list), arrays
    return memory


class SavedRun:
    """A run in a folder; without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def write_model(self, state: ModelState) -> None:
        """Write the model down after a round."""
        self._write(_MODEL, msgspec.msgpack.encode(state))

    def write_run(self, data: bytes) -> None:
        """Write the protocol's run down."""
        self._write(_RUN, data)

    def model(self) -> ModelState | None:
        """Return the model of a run that is not over; None if there is none. A damaged file is an error."""
        if self.folder is None:
            return None
        try:
            state = msgspec.msgpack.decode((self.folder / _MODEL).read_bytes(), type=ModelState)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise InvalidInput("run_dir", f"holds a run that can't be read: {problem.strerror}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            state = None
        if state is None or state.version != _VERSION:
            raise InvalidInput("run_dir", f"holds a damaged {_MODEL}: remove it to begin anew, or name another folder")
        return state

    def run(self) -> bytes | None:
        """Return the protocol's run; None if there is none."""
        if self.folder is None:
            return None
        try:
            return (self.folder / _RUN).read_bytes()
        except OSError:
            return None

    def remove(self) -> None:
        """Forget the run: it is over."""
        if self.folder is not None:
            for name in (_MODEL, _RUN):
                (self.folder / name).unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        """Write a file as a whole or not at all, on disk when this returns."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / name, data, private=True)


def number_rounds(result: Result, before: int) -> None:
    """Give a result the numbers of the whole run, where earlier rounds were another process's."""
    for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
        setattr(result, name, {number + before: metrics for number, metrics in getattr(result, name).items()})
