"""How much of a difference in accuracy is chance: runs that differ in nothing but the seed, taken together.

A comparison of single runs can't tell a better aggregator from a luckier seed. Where a report is given several seeds of
the same settings it shows mean and spread; where it is given one, it says so.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sparsesecagg.lab.report.measures import Measures

APART = ("seed", "version", "run_dir", "out")
"""Settings in which runs of the same experiment may differ."""


@dataclass(frozen=True)
class SeedSpread:
    """The accuracies of one experiment over its seeds."""

    names: tuple[str, ...]
    """Of the runs, in the order of the report."""
    accuracies: tuple[float, ...]

    @property
    def label(self) -> str:
        """What the experiment is called: its run, or what its runs' names begin with."""
        first, last = min(self.names), max(self.names)
        same = next((place for place, letter in enumerate(first) if last[place] != letter), len(first))
        return first[:same].rstrip("-_ 0123456789:/#(") or first

    @property
    def mean(self) -> float:
        """The mean accuracy."""
        return statistics.fmean(self.accuracies)

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds; None for a single one."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None


def spreads(measures: Sequence[Measures]) -> list[SeedSpread]:
    """Return the experiments among the runs that have an accuracy."""
    found: dict[str, list[Measures]] = {}
    for m in measures:
        if m.accuracy is not None:
            same = {name: value for name, value in m.run.config.items() if name not in APART}
            found.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(m)
    return [
        SeedSpread(tuple(m.run.name for m in runs), tuple(m.accuracy or 0.0 for m in runs)) for runs in found.values()
    ]
