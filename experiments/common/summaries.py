"""What several seeds of one setting come to: medians and ranges, of rounds, bytes and seconds.

Everything is computed from the runs in a result file, which keep one entry per setting and seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

from sparsesecagg.lab.audit.theory import selection_probability

Run = Mapping[str, Any]
MARKS = (5, 10, 20, 40, 80, 160)
"""Rounds at which accuracy is read, whether or not a target is reached."""


@dataclass(frozen=True)
class Spread:
    """The median of some numbers, with the smallest and the largest."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread | None:
        """Return None where there are no numbers."""
        known = list(values)
        return Spread(median(known), min(known), max(known)) if known else None

    def text(self, digits: int = 1, unit: str = "") -> str:
        """Return the median, and the range if there is one."""
        middle = f"{self.median:.{digits}f}{unit}"
        return middle if self.least == self.most else f"{middle} ({self.least:.{digits}f} to {self.most:.{digits}f})"


def t_limit(samples: int, error_rate: float, comparisons: int = 1) -> float:
    """Return what none of so many |t| exceeds, but with probability `error_rate` (Student, `samples` − 1 degrees)."""
    from scipy.stats import t  # type: ignore[import-untyped]

    return float(t.isf(error_rate / (2 * comparisons), samples - 1))


def one_more(values: Sequence[float]) -> tuple[float, float] | None:
    """Return between what one more number is to be expected in 19 of 20 cases; None for fewer than three.

    The range of five seeds leaves a sixth out in one of three cases, so that it is no measure of a rerun.
    """
    if len(values) < 3:
        return None
    reach = t_limit(len(values), 0.05) * stdev(values) * math.sqrt(1 + 1 / len(values))
    return fmean(values) - reach, fmean(values) + reach


@dataclass(frozen=True)
class Setting:
    """One system in one cohort: its runs, and SecAgg's with the same seeds."""

    clients: int
    label: str
    runs: tuple[Run, ...]
    bases: tuple[Run | None, ...]

    @property
    def system(self) -> str:
        return str(self.runs[0]["system"])

    @property
    def pairs(self) -> list[tuple[Run, Run]]:
        """Runs and their bases, where both reached the target."""
        return [
            (run, base)
            for run, base in zip(self.runs, self.bases, strict=True)
            if base is not None and run["reached_target_at"] and base["reached_target_at"]
        ]

    def crossings(self, target: float) -> Spread | None:
        """Return when the target was crossed, interpolated between rounds; of the runs that did."""
        return Spread.of(self.rounds_until(target))

    def rounds_until(self, target: float) -> list[float]:
        """Return when the target was crossed, seed by seed; of the runs that did."""
        return [found for run in self.runs if (found := crossing(run, target)) is not None]

    def upload_ratio(self, in_the_papers_format: bool = False) -> Spread | None:
        """Return how many times less was uploaded than with SecAgg until the target."""
        total = paper_total if in_the_papers_format else _total
        return Spread.of(total(base) / total(run) for run, base in self.pairs)

    def accuracy_at(self, number: int) -> Spread | None:
        """Return the accuracy after a round, of the runs that went so far."""
        return Spread.of(run["accuracy"][number - 1] for run in self.runs if len(run["accuracy"]) >= number)


def settings_of(runs: Sequence[Run]) -> list[Setting]:
    """Return the settings, smaller cohorts first, and within them in the order in which they first occur."""
    names = sorted(dict.fromkeys((run["clients"], run["label"]) for run in runs), key=lambda name: name[0])
    found = []
    for clients, label in names:
        mine = tuple(run for run in runs if (run["clients"], run["label"]) == (clients, label))
        found.append(Setting(clients, label, mine, tuple(secagg_of(runs, run) for run in mine)))
    return found


def secagg_of(runs: Sequence[Run], run: Run) -> Run | None:
    """Return SecAgg's run with as many users and the same seed, as it is usually averaged; None if there is none."""
    return next(
        (
            other
            for other in runs
            if (other["system"], other["clients"], other.get("seed")) == ("secagg", run["clients"], run.get("seed"))
            and other.get("normalisation", "observed") == "observed"
        ),
        None,
    )


def crossing(run: Run, target: float) -> float | None:
    """Return the point between two rounds at which a straight line through their accuracies reaches the target."""
    reached = run["reached_target_at"]
    if not reached:
        return None
    after = run["accuracy"][reached - 1]
    before = run["accuracy"][reached - 2] if reached > 1 else 0.0
    return float(reached - 1 + (target - before) / (after - before)) if after > before else float(reached)


def paper_total(run: Run) -> float:
    """Return all users' uploads as the paper codes them: values of 32 bits, a bitmap of locations, nothing else."""
    share = selection_probability(run["alpha"], run["clients"]) if run["system"] == "pairwise" else 1.0
    bitmap = run["dim"] / 8 if run["system"] == "pairwise" else 0.0
    return float(sum(run["uploads"]) * (4 * share * run["dim"] + bitmap))


def _total(run: Run) -> float:
    return float(run["total_upload_bytes"])


# Seconds


@dataclass(frozen=True)
class Seconds:
    """Where one run's time went until it ended: one user and the server."""

    rounds: int
    training: float
    protocol: float
    transfer: float
    latency: float

    @property
    def total(self) -> float:
        return self.training + self.protocol + self.transfer + self.latency


def wall_clock(result: Mapping[str, Any]) -> list[Seconds]:
    """Return each run's seconds.

    Local training is the same work in every system, so each is charged the mean over its cohort: what differs between
    systems is then what the systems do, and not what else the machine had to do that minute.
    """
    timings, runs = result["timings"]["runs"], result["numbers"]["runs"]
    seconds = []
    for run, timing in zip(runs, timings, strict=True):
        cohort = [one["training_seconds_per_round"] for one in timings if one["clients"] == run["clients"]]
        latency = run.get("latency_seconds", 0.0)
        seconds.append(
            Seconds(
                run["rounds"],
                fmean(cohort) * run["rounds"],
                (timing["client_seconds_per_round"] + timing["server_seconds_per_round"]) * run["rounds"],
                run["transfer_seconds"] - latency,
                latency,
            )
        )
    return seconds


def training_for(speedup: float, run: Seconds, base: Seconds) -> float | None:
    """Return the seconds of training per round with which a run would be so many times as fast as its base.

    None where no time would do: a base that needs as few rounds, and little transfer, can't be beaten by that much.
    """
    rest, base_rest = run.total - run.training, base.total - base.training
    gained, lost = base_rest - speedup * rest, speedup * run.rounds - base.rounds
    return gained / lost if gained > 0 and lost > 0 else None
