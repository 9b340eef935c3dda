"""Training to a target accuracy with several systems on equal seeds: Figures 3, 5 and 6, and the trade-off.

Every run is a `FederatedRun` in the working folder, so it goes on after the last finished round. The systems see the
same data, the same dropouts and the same first model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from experiments.common.experiment import Findings
from experiments.common.search import Search, Trial, chosen_rate, search
from experiments.common.summaries import secagg_of
from experiments.common.work import OutOfTime, Work
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import FederatedRun, Task
from sparsesecagg.lab.learning.models.base import Vector
from sparsesecagg.lab.learning.workers import Job, Trained, TrainingPool
from sparsesecagg.privacy.anonymity import availability, colluder_count
from sparsesecagg.lab.audit.theory import committee_revealed_fraction, pairwise_revealed_fraction
from sparsesecagg.protocol import Parameters

ADVERSARIES = 1 / 3
"""The paper's share of adversarial users, for the anonymity that stands beside each result."""


@dataclass(frozen=True)
class System:
    """One way to aggregate."""

    aggregator: str
    alpha: float
    modulus_bits: int
    rounds: int | None = None
    """At most this many, if other than the experiment's."""
    normalisation: str = "observed"
    """`expected` is the paper's rule, β/(p(1−θ))."""
    committee_size: int | None = None

    @property
    def key(self) -> str:
        return f"{self.aggregator}-{self.alpha:g}-{self.modulus_bits}-{self.normalisation}"

    @property
    def label(self) -> str:
        rule = (
            "" if self.normalisation == _USUAL.get(self.aggregator, "observed") else f", {_RULES[self.normalisation]}"
        )
        if self.aggregator == "secagg":
            return ("SecAgg" if self.modulus_bits == 32 else f"SecAgg, {self.modulus_bits} bits") + rule
        return f"{self.aggregator}, α={self.alpha:g}, {self.modulus_bits} bits{rule}"


_USUAL = {"pairwise": "expected"}
"""The rule of averaging that goes without saying: the paper's for its own pattern, else the mean of who is there."""
_RULES = {
    "observed": "mean of observed contributors (ablation)",
    "expected": "expected contributors (ablation)",
    "everybody": "without 1/(1−θ) (hypothesis)",
}

SECAGG, PAIRWISE = System("secagg", 1.0, 32), System("pairwise", 0.1, 32, normalisation="expected")
PAIRWISE_OBSERVED = System("pairwise", 0.1, 32)
"""The published pattern, averaged over who really contributed: what our rule alone would give it."""
SECAGG_UNSCALED = System("secagg", 1.0, 32, normalisation="everybody")
"""SecAgg that divides by N, as if nobody dropped out: may explain how many rounds the paper's SecAgg takes."""


def committee_of_ten(clients: int) -> System:
    """Return our pattern with committees of ten users and words of eight bits."""
    return System("committee", 10 / clients, 8, committee_size=10)


@dataclass(frozen=True)
class CohortRuns:
    """The runs with one number of users."""

    clients: int
    systems: tuple[System, ...]
    samples: int | None = None
    """Training samples used; all unless said otherwise."""
    lr: float | None = None
    """The learning rate; that of the paper unless said otherwise."""
    seeds: int = 1
    """How many: the one that was asked for, and those that follow."""
    ours: tuple[System, ...] = ()
    """What the paper does not have. Trained with all seeds, after the paper's systems."""
    ablations: tuple[System, ...] = ()
    """What is trained with the first seed only."""

    @classmethod
    def usual(cls, clients: int, lr: float | None = None, seeds: int = 1) -> CohortRuns:
        """Return SecAgg and the published pattern, ours, and beside them the two ablations."""
        return cls(
            clients,
            (SECAGG, PAIRWISE),
            lr=lr,
            seeds=seeds,
            ours=(committee_of_ten(clients),),
            ablations=(PAIRWISE_OBSERVED, SECAGG_UNSCALED),
        )


@dataclass(frozen=True)
class Training:
    """What is trained, and until when."""

    dataset: str
    cohorts: tuple[CohortRuns, ...]
    target: float | None
    rounds: int
    partition: str = "iid"
    model: str | None = None
    hidden: int | None = None
    dropout: float = 0.3
    search: Search | None = None
    """How learning rates other than the paper's are found; None uses the paper's, or the cohorts' own."""

    @property
    def seeds(self) -> int:
        """How many seeds the cohort with most of them has."""
        return max(cohort.seeds for cohort in self.cohorts)

    def options(self, cohort: CohortRuns, system: System, seed: int) -> TrainingConfig:
        """Return the options of one run."""
        return TrainingConfig.create(
            self.dataset,
            clients=cohort.clients,
            samples=cohort.samples,
            partition=self.partition,
            model=self.model,
            hidden=self.hidden,
            lr=cohort.lr,
            dropout=self.dropout,
            rounds=system.rounds or self.rounds,
            target_accuracy=self.target,
            aggregator=system.aggregator,
            alpha=system.alpha,
            modulus_bits=system.modulus_bits,
            committee_size=system.committee_size,
            normalisation=system.normalisation,
            downlink="model",  # As in the paper.
            seed=seed,
        )


def train_all(training: Training, seed: int, work: Work) -> Findings:
    """Train every system in every cohort with every seed, or as far as time allows."""
    searched: list[dict[str, Any]] = []
    if training.search:
        searched = search(training.search, Trial(training.dataset, training.partition, training.model), seed, work)
        rates = {one.clients: chosen_rate(training.search, searched, one.clients) for one in training.cohorts}
        training = replace(
            training, cohorts=tuple(replace(one, lr=one.lr or rates[one.clients]) for one in training.cohorts)
        )
    runs, timings, complete = [], [], True
    todo = in_order(training, seed)
    planned = [system.rounds or training.rounds for _, system, _ in todo]
    tasks: dict[tuple[int, int], Task] = {}
    with ExitStack() as stack:
        pools = Pools(stack)
        for number, (cohort, system, one_seed) in enumerate(todo):
            config = training.options(cohort, system, one_seed)
            run = _opened(config, cohort, system, tasks, work)
            before, rounds = sum(planned[:number]), sum(planned)
            with suppress(OutOfTime):
                _train(run, f"N={cohort.clients}, seed {one_seed}, {system.label}", work, before, rounds, pools)
            complete = run.finished
            if lines := run.folder.metrics():
                runs.append(_numbers(config, system, run, lines))
                timings.append(_timings(config, system, lines))
            if not complete:
                break
    if not runs:
        raise OutOfTime
    numbers = {"runs": runs, "ratios": ratios(runs)} | ({"search": searched} if searched else {})
    return Findings(numbers, {"runs": timings}, complete)


def in_order(training: Training, seed: int) -> list[tuple[CohortRuns, System, int]]:
    """Return all runs, what the paper claims before what it does not, and one seed in all cohorts before the next."""
    places = [(cohort, place) for place in range(training.seeds) for cohort in training.cohorts if place < cohort.seeds]
    published = [(cohort, system, seed + place) for cohort, place in places for system in cohort.systems]
    further = [
        (cohort, system, seed + place)
        for cohort, place in places
        for system in cohort.ours + (() if place else cohort.ablations)
    ]
    return published + further


def _opened(
    config: TrainingConfig, cohort: CohortRuns, system: System, tasks: dict[tuple[int, int], Task], work: Work
) -> FederatedRun:
    which = cohort.clients, config.seed
    if which not in tasks:
        tasks.clear()  # One at a time: a task holds the whole data set.
        tasks[which] = Task.prepare(config, data_dir=work.data_dir)
    folder = work.folder / "runs" / f"{cohort.clients}-{config.seed}-{system.key}"
    if (folder / "config.json").exists():
        return FederatedRun.resume(folder, task=tasks[which])
    return FederatedRun.create(config, tasks[which], folder)


class SharedPool(TrainingPool):
    """Workers for all systems of one cohort and seed, which begin with the same model: the first round trains once."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._model: Vector | None = None
        self._first: dict[int, Trained] = {}

    def train(self, parameters: Vector, users: Sequence[int], round_number: int) -> Iterator[Trained]:
        """Yield the update of each of `users`, in this order."""
        if round_number > 1:
            yield from super().train(parameters, users, round_number)
            return
        if self._model is None or not np.array_equal(self._model, parameters):
            self._model, self._first = parameters.copy(), {}
        new = [user for user in users if user not in self._first]
        self._first |= {one.user: one for one in super().train(parameters, new, round_number)}
        yield from (self._first[user] for user in users)


class Pools:
    """The workers of one task at a time, not begun before a run needs them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._task: Task | None = None

    def of(self, run: FederatedRun) -> SharedPool:
        """Return the workers of a run's task; those of another task end."""
        if self._task is not run.task:
            self._stack.close()
            task = self._task = run.task
            job = Job(task.model, task.dataset, task.partition, run.config.how, run.config.seed)
            self._pool = self._stack.enter_context(SharedPool(job))
        return self._pool


def _train(run: FederatedRun, label: str, work: Work, before: int, rounds: int, pools: Pools) -> None:
    if run.finished:
        return
    work.check_time()
    pool = pools.of(run)
    work.report(label, before + run.round_number, rounds)
    for metrics in run.rounds(pool):
        work.report(f"{label}: {metrics.accuracy:.1%}", before + metrics.round, rounds)
        if not run.finished:
            work.check_time()


def _numbers(
    config: TrainingConfig, system: System, run: FederatedRun, lines: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    reached = run.reached_target_at
    numbers = {
        "clients": config.clients,
        "seed": config.seed,
        "system": system.aggregator,
        "label": system.label,
        "lr": config.lr,
        "alpha": system.alpha,
        "modulus_bits": system.modulus_bits,
        "committee_size": system.committee_size,
        "normalisation": system.normalisation,
        "dim": run.task.model.dim,
        "samples": len(run.task.dataset.train_y),
        "rounds": len(lines),
        "failed_rounds": sum(line["status"] == "failed" for line in lines),
        "reached_target_at": reached,
        "accuracy": [line["accuracy"] for line in lines],
        "uploads": [line["uploads"] for line in lines],
        "upload_bytes": [line["upload_bytes"] for line in lines],
        "total_upload_bytes": round(sum(line["uploads"] * line["upload_bytes"] for line in lines)),
        "sent_bytes_per_user": sum(line["sent_bytes"]["total"] for line in lines),
        "transfer_seconds": sum(line["transfer_seconds"] for line in lines),
        "latency_seconds": sum(line["exchanges"] for line in lines) * 2 * config.latency_ms / 1000,
        "latency_ms": config.latency_ms,
        "bandwidth_mbit": config.bandwidth_mbit,
        "contributors_mean": fmean(
            [line["contributors"]["mean"] for line in lines if line["contributors"]["mean"] is not None] or [0.0]
        ),
    }
    return numbers | {"anonymity": anonymity(numbers, config.dropout)}


def round_parameters(run: Mapping[str, Any], dropout: float) -> Parameters:
    """Return the parameters of a run's rounds, from its numbers."""
    pattern = "full" if run["system"] == "secagg" else run["system"]
    return Parameters.create(
        clients=run["clients"],
        dim=run["dim"],
        pattern=pattern,
        alpha=run["alpha"],
        dropout=dropout,
        modulus_bits=run["modulus_bits"],
        committee_size=run["committee_size"],
    )


def anonymity(run: Mapping[str, Any], dropout: float) -> dict[str, Any]:
    """Return among how many honest survivors a value hides, on average, and how many are read nonetheless."""
    params = round_parameters(run, dropout)
    honest = params.clients - colluder_count(params.clients, ADVERSARIES)
    # Who dropped out of the two rounds before has no package, and is missing as well (nor is it anybody's peer).
    missing = 1 - availability(dropout)

    def revealed(colluding: float) -> float:
        if params.pattern == "pairwise":
            return pairwise_revealed_fraction(run["alpha"], params.clients, dropout, colluding)
        return committee_revealed_fraction(params.clients, params.committees, missing, colluding, params.min_survivors)

    return {
        "adversaries": ADVERSARIES,
        "honest_contributors": params.selection_probability * (1 - missing) * honest,
        "revealed_fraction": {name: revealed(share) for name, share in _SHARES.items()},
    }


_SHARES = {"none collude": 0.0, "a third colludes": ADVERSARIES}


def _timings(config: TrainingConfig, system: System, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "clients": config.clients,
        "seed": config.seed,
        "system": system.aggregator,
        "label": system.label,
        "training_seconds_per_round": fmean(line["training_seconds"] for line in lines),
        "client_seconds_per_round": fmean(line["client_seconds"]["total"] for line in lines),
        "server_seconds_per_round": fmean(line["server_seconds"]["total"] for line in lines),
    }


def ratios(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return how much less each run uploads than SecAgg's until the target; None where one did not reach it."""
    found = []
    for run in runs:
        base = secagg_of(runs, run)
        until = None
        if base is not None and base["reached_target_at"] and run["reached_target_at"]:
            until = base["total_upload_bytes"] / run["total_upload_bytes"]
        found.append(
            {
                "clients": run["clients"],
                "seed": run["seed"],
                "label": run["label"],
                "system": run["system"],
                "upload_until_target": until,
                "upload_per_round": _mean_upload(base) / _mean_upload(run) if base else None,
                "rounds": [run["reached_target_at"], base["reached_target_at"] if base else None],
            }
        )
    return found


def _mean_upload(run: Mapping[str, Any]) -> float:
    return float(run["total_upload_bytes"] / max(1, sum(run["uploads"])))
