"""What an experiment is: a configuration for each scale, a measurement, a picture, and a comparison with the paper."""

from __future__ import annotations

import dataclasses
import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common import results
from experiments.common.data import describe_data
from experiments.common.work import OutOfTime, Report, Work
from sparsesecagg.errors import InvalidInput

NAMES = ("table1", "fig2", "fig3", "fig4", "fig5", "fig6", "mcmahan", "hypotheses", "theory", "tradeoff", "clock")


class Findings(NamedTuple):
    """What an experiment measured. `numbers` must not depend on the machine; whatever does goes into `timings`."""

    numbers: dict[str, Any]
    timings: dict[str, Any]
    complete: bool = True


class Row(NamedTuple):
    """One line of the comparison with the paper."""

    what: str
    paper: str
    ours: str
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """The four functions of an experiment's folder."""

    name: str
    title: str
    configurations: Mapping[str, Any]
    """Scale → a frozen dataclass of plain values."""
    run: Callable[[Any, int, Work], Findings]
    """(configuration, seed, work) → findings; raises `OutOfTime` where half of it is worth nothing."""
    plot: Callable[[Mapping[str, Any], Path], list[Path]]
    """(result file's contents, folder) → the files drawn."""
    compare: Callable[[Mapping[str, Any]], Sequence[Row]]
    """(result file's contents) → the paper's figures beside ours."""
    needs: Callable[[Any], Sequence[str]] = lambda _: ()
    """configuration → names of the data sets that must be there."""
    seeds: Callable[[Any], int] = lambda _: 1
    """configuration → how many seeds are used: the one that was asked for, and those that follow."""
    cpu_minutes: float = 5.0
    """What the default scale takes on one idle core, about."""


def load(name: str) -> Experiment:
    """Return the experiment called `name`."""
    if name not in NAMES:
        raise InvalidInput("name", f"must be one of {', '.join(NAMES)}, all, got {name!r}")
    module = importlib.import_module(f"experiments.{name}")
    experiment: Experiment = module.EXPERIMENT
    return experiment


@dataclass(frozen=True)
class Reproduced:
    """What came of one experiment."""

    name: str
    result: Mapping[str, Any] | None
    """None if time ran out before there was anything to show."""
    results_file: Path
    plots: Sequence[Path]
    rows: Sequence[Row]
    seconds: float


def reproduce(
    name: str,
    scale: str,
    seed: int,
    out: Path,
    work_dir: Path,
    *,
    data_dir: Path | None = None,
    deadline: float | None = None,
    fresh: bool = False,
    report: Report = lambda *_: None,
) -> Reproduced:
    """Run (or resume) one experiment, write its result file into `out` and its plots into `out`/plots."""
    experiment, began = load(name), time.monotonic()
    configuration = experiment.configurations[scale]
    identity = results.describe(name, scale, seed, dataclasses.asdict(configuration))
    work = Work(work_dir / scale / name, identity, data_dir=data_dir, deadline=deadline, report=report, fresh=fresh)
    about: dict[str, Any] = {
        "seeds": [seed + more for more in range(experiment.seeds(configuration))],
        "data": describe_data(experiment.needs(configuration), data_dir),
        "commit": results.commit(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    if work.resumed:
        report("resuming where an earlier run stopped", 0, 1)
    path = out / f"{name}.json"
    before = results.read(path) if path.exists() and not fresh else None
    if before and (before["scale"], before["data"]) == (scale, about["data"]):
        work.earlier = before

    def save(found: Findings) -> dict[str, Any]:
        commits = dict.fromkeys(run["commit"] for run in found.numbers.get("runs", ()) if "commit" in run)
        whole = about | ({"commit": ", ".join(map(str, commits))} if commits else {})
        return results.write(path, identity, found.numbers, found.timings, found.complete, about=whole)

    work.commit, work.save = about["commit"], save
    try:
        findings = experiment.run(configuration, seed, work)
    except OutOfTime:
        return Reproduced(name, None, path, (), (), time.monotonic() - began)
    # All of it taken from the file: then it stays as it is, with its date and machine.
    same = before is not None and (before["numbers"], before["complete"]) == (findings.numbers, findings.complete)
    result = before if before is not None and same else save(findings)
    if findings.complete:
        work.finish()
    return Reproduced(
        name, result, path, experiment.plot(result, out / "plots"), experiment.compare(result), time.monotonic() - began
    )
