"""Check every theorem and lemma."""

from __future__ import annotations

from functools import partial
from typing import Any

from experiments.common.experiment import Findings
from experiments.common.work import Work
from experiments.theory import anonymity, compression, convergence, dropouts, growth, lemmas
from experiments.theory.config import Config


def run(config: Config, seed: int, work: Work) -> Findings:
    """Measure, then judge what was measured."""
    cells = _Cells(work, _count(config))
    oversize = [
        point
        for dim in config.compression.dims
        for point in compression.exceedance(
            config.compression,
            dim,
            cells(f"Theorem 1, d={dim}", partial(compression.sent_counts, config.compression, dim, seed)),
        )
    ]
    crowds = [
        cells(f"Theorem 2, N={clients}", partial(anonymity.measure, config.anonymity, clients, seed))
        for clients in config.anonymity.cohorts
    ]
    grown = [
        cells(
            f"Theorem 3, {pattern}, N={clients}, d={dim}",
            partial(growth.measure, config.growth, pattern, clients, dim, seed),
        )
        for pattern in growth.PATTERNS
        for clients, dim in _sizes(config)
    ]
    fits = growth.exponents(config.growth, [one["numbers"] for one in grown])
    silent = [
        cells(f"dropouts, N={clients}", partial(dropouts.measure, config.dropouts, clients, seed))
        for clients in config.dropouts.cohorts
    ]
    means = cells("lemmas", partial(lemmas.measure, config.lemmas, seed))
    in_runs = [cells(f"Lemma 1, {way}", partial(lemmas.measure_run, config.in_a_run, way, seed)) for way in lemmas.WAYS]
    trained = [
        convergence.summarise(
            config.convergence,
            steps,
            [
                cells(
                    f"Theorem 4, E={steps}, run {repeat + 1}",
                    partial(convergence.train, config.convergence, steps, repeat, seed),
                )
                for repeat in range(config.convergence.repeats)
            ],
            seed,
        )
        for steps in config.convergence.local_steps
    ]
    checks = [
        *compression.checks(config.compression, oversize),
        *anonymity.checks(crowds),
        *growth.checks(fits),
        *dropouts.checks(silent),
        *lemmas.checks(config.lemmas, means),
        *lemmas.run_checks(config.in_a_run, in_runs),
        *convergence.checks(config.convergence, trained),
    ]
    numbers = {
        "checks": checks,
        "all_hold": all(check["holds"] for check in checks),
        "oversize": oversize,
        "anonymity": crowds,
        "growth": [one["numbers"] for one in grown],
        "exponents": fits,
        "remark": growth.remark(fits),
        "unmentioned": growth.unmentioned([one["numbers"] for one in grown], fits),
        "in_a_run": in_runs,
        "convergence": trained,
    }
    return Findings(numbers, {"growth": [one["timings"] for one in grown]})


class _Cells:
    """Cells named by what they are, with progress."""

    def __init__(self, work: Work, total: int) -> None:
        self._work, self._total, self._done = work, total, 0

    def __call__(self, what: str, compute: Any) -> Any:
        self._work.report(what, self._done, self._total)
        found = self._work.cell(what.replace(", ", "-").replace(" ", "-"), compute)
        self._done += 1
        return found


def _sizes(config: Config) -> list[tuple[int, int]]:
    """Return all sizes of all directions, each once."""
    return sorted({size for along in growth.ALONG for size in growth.sizes(config.growth, along)})


def _count(config: Config) -> int:
    trained = len(config.convergence.local_steps) * config.convergence.repeats
    return (
        len(config.compression.dims)
        + len(config.anonymity.cohorts)
        + len(growth.PATTERNS) * len(_sizes(config))
        + len(config.dropouts.cohorts)
        + 1
        + len(lemmas.WAYS)
        + trained
    )
