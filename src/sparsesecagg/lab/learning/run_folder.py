"""The folder that a run leaves behind, and what makes it safe to kill a run at any moment.

    config.json       all options, the size of the model, the package's version
    partition.json    who holds how many samples of each class; partition.npz: which ones
    metrics.jsonl     one JSON object per round
    checkpoint.npz    everything that the next round depends on
    model.npz         the final model         report.html: made at the end

A round is done when its checkpoint is in place. The metrics line is written before that, so a kill in between leaves a
line too many, never one too few; `resume` cuts it off.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.files import write_atomically
from sparsesecagg.lab.learning.data import Partition
from sparsesecagg.lab.learning.models import Layer, Vector

_PARTS = ("aggregator.", "downlink.")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state between two rounds."""

    round_number: int
    parameters: Vector
    aggregator: dict[str, NDArray[Any]]
    downlink: dict[str, NDArray[Any]] = field(default_factory=dict)


class RunFolder:
    """Reads and writes one run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], partition: Partition, first: Checkpoint) -> RunFolder:
        """Make a new folder; one that holds anything already is left alone."""
        check_free(path)
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        partition.save(path)
        folder.save_checkpoint(first)
        (path / "metrics.jsonl").touch()
        # Last, because a folder with a configuration is one that can be resumed.
        folder.write_config(config)
        return folder

    @classmethod
    def resume(cls, path: Path) -> RunFolder:
        """Open the folder of a run that was stopped or killed."""
        if not (path / "config.json").is_file() or not (path / "checkpoint.npz").is_file():
            raise InvalidInput("resume", f"{path} is not a run folder: config.json or checkpoint.npz is missing")
        return cls(path)

    def config(self) -> dict[str, Any]:
        """Return the options of the run."""
        with readable(self.path / "config.json") as path:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace the options."""
        write_atomically(self.path / "config.json", json.dumps(config, indent=2) + "\n")

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Add the line of one round."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of all rounds; a last line that a kill cut short is left out."""
        with readable(self.path / "metrics.jsonl") as path:
            return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    def cut_metrics(self, last_round: int) -> list[dict[str, Any]]:
        """Drop lines of rounds after `last_round`, which have no checkpoint; return the others."""
        with readable(self.path / "metrics.jsonl"):
            kept = [line for line in self.metrics() if line["round"] <= last_round]
            if len(kept) < last_round:
                raise ValueError(f"it has {len(kept)} of {last_round} rounds")
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in kept)
        write_atomically(self.path / "metrics.jsonl", text)
        return kept

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Put the state of a finished round in place of the last one's, in one step."""
        arrays: dict[str, Any] = {"round": checkpoint.round_number, "parameters": checkpoint.parameters}
        for part, state in zip(_PARTS, (checkpoint.aggregator, checkpoint.downlink), strict=True):
            arrays |= {part + name: value for name, value in state.items()}
        self._write_arrays("checkpoint.npz", arrays)

    def checkpoint(self) -> Checkpoint:
        """Return the state after the last finished round."""
        with readable(self.path / "checkpoint.npz") as path, np.load(path) as stored:
            states = [
                {name.removeprefix(part): stored[name] for name in stored.files if name.startswith(part)}
                for part in _PARTS
            ]
            return Checkpoint(int(stored["round"]), stored["parameters"], *states)

    def save_model(self, parameters: Vector, layers: tuple[Layer, ...]) -> None:
        """Write the final model: the flat vector, and where each layer lies in it."""
        names, stops = [layer.name for layer in layers], [layer.stop for layer in layers]
        arrays = {"parameters": parameters, "layer_names": names, "layer_stops": np.array(stops, np.int64)}
        self._write_arrays("model.npz", arrays)

    def _write_arrays(self, name: str, arrays: dict[str, Any]) -> None:
        content = io.BytesIO()
        np.savez(content, **arrays)
        write_atomically(self.path / name, content.getvalue())


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """Read a file of a run folder; raise `InvalidInput` if it is damaged."""
    try:
        yield path
    except (ValueError, TypeError, KeyError, EOFError, BadZipFile) as problem:  # msgspec's are ValueErrors.
        if isinstance(problem, InvalidInput):
            raise
        raise InvalidInput("resume", f"{path} is damaged ({problem}): restore it or begin a new run") from problem


def check_free(path: Path) -> None:
    """Raise `InvalidInput` if a new run can't go to `path`."""
    require("out", not path.exists() or path.is_dir(), f"must name a new folder, got the file {path}")
    if path.is_dir() and any(path.iterdir()):
        raise InvalidInput("out", f"must name a new folder, got {path}, which is not empty (--resume continues a run)")
