"""The records of a run folder: tolerant where aggregators differ, strict where a file is not a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

import msgspec

from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.lab.learning.aggregation import RoundLine
from sparsesecagg.protocol import Stage

# The words of the protocol, in its order; stages that a run does not have are simply absent from its records.
STAGES = tuple(stage.name for stage in Stage)

CONFIG = "config.json"
PARTITION = "partition.json"
METRICS = "metrics.jsonl"
COMPARISON = "comparison.json"
_BY_SEED = ("seed", "version", "dataset_digest", "data_dir")
"""What may differ between runs of one experiment: some take a part of the samples, by their seed."""


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
    seeds: tuple[Run, ...] = ()
    """The runs behind an experiment that was repeated with several seeds: `rounds` then holds their means."""

    @property
    def spread(self) -> list[float]:
        """The standard deviation of the accuracy over the seeds, for each round."""
        columns = zip(*(run.rounds[: len(self.rounds)] for run in self.seeds), strict=True)
        return [stdev([line.accuracy or 0.0 for line in column]) for column in columns]

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
        """The share of uploaded values that theory expects the server to read; None if it was not recorded."""
        if "expected_exposure" not in self.config:
            return None
        share = self.config["expected_exposure"]
        return float(share) if isinstance(share, int | float) else 1.0  # Of plain averaging null: it reads everything.


def read_folder(run_dir: Path) -> tuple[Run, ...]:
    """Read the run of a folder, or all runs of a comparison. Raises InvalidInput if it is neither."""
    comparison = run_dir / COMPARISON
    if not comparison.is_file():
        return (read_run(run_dir),)
    names = _load(comparison).get("runs")
    if not isinstance(names, list) or not names:
        raise InvalidInput("run_dir", f"has a {COMPARISON} that lists no runs; run the comparison again")
    for name in names:
        # A name is one folder inside the comparison, so a record can't point at files elsewhere.
        if not isinstance(name, str) or name in {"", ".", ".."} or set(name) & set("/\\"):
            raise InvalidInput("run_dir", f"has a {COMPARISON} with {name!r}, which is not the name of a sub-folder")
    return tuple(read_run(run_dir / name, name=name) for name in names)


def read_runs(run_dirs: Sequence[Path]) -> tuple[Run, ...]:
    """Read the runs of several folders; those that differ in nothing but the seed become one, with their means."""
    found: dict[tuple[str, int], list[tuple[Path, Run]]] = {}
    often: Counter[tuple[str, Any]] = Counter()
    for run_dir in run_dirs:
        for run in read_folder(run_dir):
            same = json.dumps({k: v for k, v in run.config.items() if k not in _BY_SEED}, sort_keys=True, default=str)
            seed = run.config.get("seed")
            found.setdefault((same, often[same, seed]), []).append((run_dir, run))
            often[same, seed] += 1  # The same seed once more is another experiment.
    groups = [(group[0][0], [run for _, run in group]) for group in found.values()]
    labels = Counter(_label(runs) for _, runs in groups)
    experiments: dict[str, Run] = {}
    for run_dir, runs in groups:
        label, folder = _label(runs), run_dir.resolve().name
        name = label if labels[label] == 1 else folder if label in folder else f"{label} ({folder})"
        name = name if name not in experiments else f"{name} #{len(experiments) + 1}"
        experiments[name] = msgspec.structs.replace(merged(runs), name=name)
    return tuple(experiments.values())


def _label(runs: Sequence[Run]) -> str:
    return runs[0].name.removesuffix(f"-seed-{runs[0].config.get('seed')}") if len(runs) > 1 else runs[0].name


def merged(runs: Sequence[Run]) -> Run:
    """Return runs of several seeds as one: its rounds are the means of those that all of them have."""
    first, *others = runs
    if not others:
        return first
    columns = zip(*(run.rounds for run in runs), strict=False)
    lines = tuple(RoundLine(**_mean([msgspec.to_builtins(line) for line in column])) for column in columns)
    config = MappingProxyType({**first.config, "seed": [run.config.get("seed") for run in runs]})
    return msgspec.structs.replace(first, config=config, rounds=lines, seeds=tuple(runs))


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers, of mappings by their keys, and the first of anything else; what is absent is 0."""
    first = next((value for value in values if value is not None), None)
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _mean([value.get(key, 0) for value in values]) for key in keys}
    if isinstance(first, int | float) and not isinstance(first, bool):
        mean = fmean(value for value in values if value is not None)
        return int(mean) if mean.is_integer() else mean
    # A round that failed with some seeds only is none that failed.
    return "ok" if first == "failed" and len(set(values)) > 1 else first


def read_run(run_dir: Path, name: str | None = None) -> Run:
    """Read one run folder; `name` is what the report calls it, the aggregator by default."""
    wanted = "a folder written by `sparsesecagg train` or by Flower"
    require("run_dir", (run_dir / CONFIG).is_file(), f"must be {wanted}, got {run_dir} without {CONFIG}")
    config, partition = _load(run_dir / CONFIG), run_dir / PARTITION
    return Run(
        name=name or str(config.get("aggregator", run_dir.name)),
        config=MappingProxyType(config),
        partition=_partition(partition) if partition.is_file() else None,
        rounds=_rounds(run_dir / METRICS),
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        value = _from_json(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput("run_dir", f"has an unreadable {path.name} ({error}); restore it or run again") from error
    if not isinstance(value, dict):
        raise InvalidInput("run_dir", f"has a {path.name} that is not one JSON object; restore it or run again")
    return value


def _from_json(text: str) -> Any:
    """Read JSON; NaN and Infinity, which Python writes for a loss that diverged, are absent."""
    return json.loads(text, parse_constant=lambda _: None)


def _partition(path: Path) -> LabelCounts:
    try:
        found = msgspec.convert(_load(path), LabelCounts)
    except msgspec.ValidationError as error:
        raise InvalidInput("run_dir", f"has a {PARTITION} without classes and counts ({error})") from error
    if any(len(row) != len(found.classes) for row in found.counts):
        raise InvalidInput("run_dir", f"has a {PARTITION} whose rows don't count one number per class")
    return found


def _rounds(path: Path) -> tuple[RoundLine, ...]:
    """Read the metrics; a resumed round replaces its first attempt, and a null is an absent measurement."""
    text = path.read_text("utf-8") if path.is_file() else ""
    lines = text.splitlines()
    by_round: dict[int, RoundLine] = {}
    for number, line in enumerate(lines, start=1):
        try:
            known = {name: value for name, value in dict(_from_json(line)).items() if value is not None}
            record = msgspec.convert(known, RoundLine)
        except (TypeError, ValueError) as error:  # msgspec's is a ValueError.
            # A killed run may leave its last line half written; everything before it is whole.
            if number == len(lines) and not text.endswith("\n"):
                break
            raise InvalidInput("run_dir", f"has a bad line {number} in {METRICS} ({error})") from error
        by_round[record.round] = record
    return tuple(by_round[number] for number in sorted(by_round))
