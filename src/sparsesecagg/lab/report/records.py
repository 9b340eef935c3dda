"""What a training run leaves behind: frozen records of a run folder, and how they are read.

This file knows the layout of the folder and nothing of HTML. Reading is tolerant where aggregators differ (plain
averaging has no key stages) and strict where a file is simply not a run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.metrics import RoundLine
from sparsesecagg.protocol import Stage

# The words of the protocol, in its order; stages that a run does not have are simply absent from its records.
STAGES = tuple(stage.name for stage in Stage if stage is not Stage.DONE)

CONFIG = "config.json"
PARTITION = "partition.json"
METRICS = "metrics.jsonl"
COMPARISON = "comparison.json"


class LabelCounts(msgspec.Struct, frozen=True):
    """Who holds which labels: `counts[client][class]` samples."""

    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class Run(msgspec.Struct, frozen=True):
    """One run folder: options, label distribution, one record per round in order of the rounds."""

    name: str
    config: Mapping[str, Any]
    partition: LabelCounts | None
    rounds: tuple[RoundLine, ...]

    @property
    def aggregator(self) -> str:
        """The aggregator's name as the command line spells it."""
        return str(self.config.get("aggregator", self.name))

    def setting(self, key: str) -> Any:
        """Return what the run really used: the aggregator's own value where it recorded one, else the option."""
        effective = self.config.get("effective")
        if isinstance(effective, Mapping) and effective.get(key) is not None:
            return effective[key]
        return self.config.get(key)

    @property
    def expected_exposure(self) -> float | None:
        """The share of uploaded values that theory expects the server to read; None if it was not recorded.

        Plain averaging records null: there the server reads everything.
        """
        if "expected_exposure" not in self.config:
            return None
        share = self.config["expected_exposure"]
        return float(share) if isinstance(share, int | float) else 1.0


class RunSet(msgspec.Struct, frozen=True):
    """What a report is about: one run, or several with the same seeds."""

    runs: tuple[Run, ...]
    is_comparison: bool


def read_run_set(run_dir: Path) -> RunSet:
    """Read a run folder, or a comparison with its sub-folders. Raises InvalidInput if it is neither."""
    comparison = run_dir / COMPARISON
    if not comparison.is_file():
        return RunSet(runs=(read_run(run_dir),), is_comparison=False)
    names = _load(comparison).get("runs")
    if not isinstance(names, list) or not names:
        raise InvalidInput("run_dir", f"has a {COMPARISON} that lists no runs; run the comparison again")
    for name in names:
        # A name is one folder inside the comparison, so a record can't point at files elsewhere.
        if not isinstance(name, str) or name in {"", ".", ".."} or "/" in name or "\\" in name:
            raise InvalidInput(
                "run_dir", f"has a {COMPARISON} with the run {name!r}; it must be the name of a sub-folder"
            )
    runs = tuple(read_run(run_dir / name, name=name) for name in names)
    return RunSet(runs=runs, is_comparison=True)


def read_runs(run_dirs: Sequence[Path]) -> RunSet:
    """Read runs of several folders; those that have one name are told apart by the names of their folders."""
    found = [(run_dir, run) for run_dir in run_dirs for run in read_run_set(run_dir).runs]
    often = Counter(run.name for _, run in found)
    runs: list[Run] = []
    taken: set[str] = set()
    for run_dir, run in found:
        folder = run_dir.resolve().name
        name = run.name if often[run.name] == 1 else folder if run.name in folder else f"{run.name} ({folder})"
        numbered = name if name not in taken else f"{name} #{len(runs) + 1}"
        taken.add(numbered)
        runs.append(msgspec.structs.replace(run, name=numbered))
    return RunSet(tuple(runs), len(runs) > 1)


def read_run(run_dir: Path, name: str | None = None) -> Run:
    """Read one run folder; `name` is what the report calls it, the aggregator by default."""
    if not (run_dir / CONFIG).is_file():
        raise InvalidInput(
            "run_dir",
            f"must be a folder written by `sparsesecagg train` or by Flower; {run_dir} has no {CONFIG} or {COMPARISON}",
        )
    config = _load(run_dir / CONFIG)
    partition = run_dir / PARTITION
    return Run(
        name=name if name is not None else str(config.get("aggregator", run_dir.name)),
        config=MappingProxyType(config),
        partition=_partition(partition) if partition.is_file() else None,
        rounds=_rounds(run_dir / METRICS),
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"), parse_constant=_not_a_number)
    except (OSError, ValueError) as error:
        raise InvalidInput("run_dir", f"has an unreadable {path.name} ({error}); restore it or run again") from error
    if not isinstance(value, dict):
        raise InvalidInput("run_dir", f"has a {path.name} that is not one JSON object; restore it or run again")
    return value


def _partition(path: Path) -> LabelCounts:
    value = _load(path)
    try:
        classes = tuple(str(name) for name in value["classes"])
        counts = msgspec.convert(value["counts"], tuple[tuple[int, ...], ...])
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise InvalidInput("run_dir", f"has a {PARTITION} without classes and counts ({error})") from error
    if any(len(row) != len(classes) for row in counts):
        raise InvalidInput("run_dir", f"has a {PARTITION} whose rows don't count one number per class")
    return LabelCounts(classes=classes, counts=counts)


def _rounds(path: Path) -> tuple[RoundLine, ...]:
    """Read the metrics; a resumed round replaces its first attempt."""
    if not path.is_file():
        return ()
    text = path.read_text("utf-8")
    lines = text.splitlines()
    by_round: dict[int, RoundLine] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = _without_nulls(json.loads(line, parse_constant=_not_a_number))
            record = msgspec.convert(value, RoundLine)
        except (ValueError, msgspec.ValidationError) as error:
            # A killed run may leave its last line half written; everything before it is whole.
            if number == len(lines) and not text.endswith("\n"):
                break
            raise InvalidInput("run_dir", f"has a bad line {number} in {METRICS} ({error})") from error
        by_round[record.round] = record
    return tuple(by_round[number] for number in sorted(by_round))


def _not_a_number(_: str) -> None:
    """Read NaN and Infinity, which Python writes for a loss that diverged, as absent."""


def _without_nulls(value: Any) -> Any:
    """Drop absent measurements, so that the records' defaults stand in for them."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value
