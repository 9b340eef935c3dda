"""What several seeds of one setting come to: medians and ranges, of rounds and bytes.

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


def times(ratio: Spread | None) -> str:
    """Return how many times, or a dash where it is not known."""
    return "–" if ratio is None else ratio.text(1, "×")


def t_limit(samples: int, error_rate: float, comparisons: int = 1) -> float:
    """Return what no |t| of so many exceeds, except with probability `error_rate` (Student, `samples` − 1 degrees)."""
    from scipy.stats import t

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
    """One system in one cohort with one learning rate: its runs, and SecAgg's with the same seeds."""

    clients: int
    label: str
    runs: tuple[Run, ...]
    bases: tuple[Run | None, ...]

    @property
    def system(self) -> str:
        """The aggregator's name."""
        return str(self.runs[0]["system"])

    @property
    def published(self) -> bool:
        """Whether this is the paper's pattern with the paper's α, averaged by the paper's rule."""
        first = self.runs[0]
        return self.system == "pairwise" and (first["normalisation"], first["alpha"]) == ("expected", 0.1)

    @property
    def pairs(self) -> list[tuple[Run, Run]]:
        """Runs and their bases, where both reached the target."""
        return [
            (run, base)
            for run, base in zip(self.runs, self.bases, strict=True)
            if base is not None and run["reached_target_at"] and base["reached_target_at"]
        ]

    def target(self, usual: float) -> float:
        """Return the accuracy to reach: the figure's usual one where runs name none."""
        return float(self.runs[0].get("target", usual))

    def rounds_until(self, target: float) -> list[float]:
        """Return when the target was crossed, interpolated between rounds, seed by seed; of the runs that did."""
        return [found for run in self.runs if (found := crossing(run, target)) is not None]

    def upload_ratio(self, in_the_papers_format: bool = False) -> Spread | None:
        """Return how many times less was uploaded than with SecAgg until the target."""
        total = paper_total if in_the_papers_format else _total
        return Spread.of(total(base) / total(run) for run, base in self.pairs)


def settings_of(runs: Sequence[Run]) -> list[Setting]:
    """Return the settings, smaller cohorts first, and within them in the order in which they first occur."""
    groups: dict[tuple[int, str, float], list[Run]] = {}
    for run in runs:
        groups.setdefault((run["clients"], run["label"], run["lr"]), []).append(run)
    return [
        Setting(clients, label, tuple(mine), tuple(secagg_of(runs, run) for run in mine))
        for (clients, label, _), mine in sorted(groups.items(), key=lambda group: group[0][0])
    ]


def published(result: Mapping[str, Any]) -> list[Setting]:
    """Return the published pattern's settings, one per N and learning rate."""
    return [one for one in settings_of(result["numbers"]["runs"]) if one.published]


def published_of(runs: Sequence[Run], run: Run) -> Run | None:
    """Return the published pattern's run with as many users, the same seed and learning rate; None if there is none."""
    same = ("clients", "seed", "lr")
    found = (one for setting in settings_of(runs) if setting.published for one in setting.runs)
    return next((one for one in found if all(one[name] == run[name] for name in same)), None)


def secagg_of(runs: Sequence[Run], run: Run) -> Run | None:
    """Return SecAgg's run with as many users, the same seed, learning rate and target; None if there is none."""

    def name(one: Run) -> tuple[Any, ...]:
        return one["clients"], one["seed"], one["lr"], one.get("target")

    return next((one for one in runs if one["system"] == "secagg" and name(one) == name(run)), None)


def crossing(run: Run, target: float) -> float | None:
    """Return the point between two rounds at which a straight line through their accuracies reaches the target."""
    reached = run["reached_target_at"]
    if not reached:
        return None
    after = run["accuracy"][reached - 1]
    before = run["accuracy"][reached - 2] if reached > 1 else 0.0
    return float(reached - 1 + (target - before) / (after - before)) if after > before else float(reached)


def paper_total(run: Run) -> float:
    """Return all users' uploads as the paper codes them: values of 32 bits, a bitmap of locations, nothing else.

    Keys of all users arrive, so that all N take part in the drawing, and p is that of the paper.
    """
    share = selection_probability(run["alpha"], run["clients"]) if run["system"] == "pairwise" else run["alpha"]
    bitmap = run["dim"] / 8 if run["system"] == "pairwise" else 0.0
    return float(sum(run["uploads"]) * (4 * share * run["dim"] + bitmap))


def _total(run: Run) -> float:
    return float(run["total_upload_bytes"])
