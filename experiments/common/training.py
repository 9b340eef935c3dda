"""Training to a target accuracy with several systems on equal seeds: Figures 3, 5 and 6, and the trade-off.

Conditions are the paper's: learning rate 0.01, and dropouts at UPLOAD only. Keys of all users arrive, so that θ is the
part of the uploads that is missing and all N take part in drawing the pattern; every threshold is ⌊N/2⌋ + 1. Every run
is a `FederatedRun` in the working folder, so it resumes after the last finished round; runs that the result file holds
already are taken from it, with the commit that trained them. The systems see the same data, the same dropouts and the
same first model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from experiments.common.experiment import Findings
from experiments.common.results import clean
from experiments.common.rounds import majority
from experiments.common.work import Json, OutOfTime, Work
from sparsesecagg.lab.audit.theory import expected_fraction
from sparsesecagg.lab.learning.aggregators import PATTERN_OF
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import FederatedRun, Task
from sparsesecagg.lab.learning.models import Vector
from sparsesecagg.lab.learning.workers import Job, Trained, TrainingPool
from sparsesecagg.planning.message_sizes import shortest_word
from sparsesecagg.privacy.anonymity import colluder_count
from sparsesecagg.protocol import Parameters, RoundOptions
from sparsesecagg.protocol.policy import kept_by

ADVERSARIES = 1 / 3
"""The paper's share of adversarial users, for the anonymity that stands beside each result."""
DROPOUT = 0.3
LEARNING_RATE = 0.01


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
    target: float | None = None
    """The accuracy to reach, if other than the cohort's."""

    @property
    def key(self) -> str:
        """The name of its run folders."""
        until = "" if self.target is None else f"-{self.target:g}"
        return f"{self.aggregator}-{self.alpha:g}-{self.modulus_bits}-{self.normalisation}{until}"

    @property
    def label(self) -> str:
        """The name in tables."""
        until = "" if self.target is None else f", until {self.target:.0%}"
        if self.aggregator == "secagg":
            return f"SecAgg{until}"
        rule = "" if self.normalisation == _USUAL.get(self.aggregator, "observed") else f", {self.normalisation} mean"
        return f"{self.aggregator}, α={self.alpha:g}, {self.modulus_bits} bits{rule}{until}"


_USUAL = {"pairwise": "expected"}
"""The rule of averaging that goes without saying: the paper's for its own pattern, else the mean of who is there."""

SECAGG, PAIRWISE = System("secagg", 1.0, 32), System("pairwise", 0.1, 32, normalisation="expected")
PAIRWISE_OBSERVED = System("pairwise", 0.1, 32)
"""The published pattern, averaged over who really contributed: what our rule alone would give it."""
SLICED = System("sliced", 0.1, 32)
"""Ours in one group, with the paper's α and SecAgg's words."""
SHORTEST_WORD, LEVELS = 8, 2


def sliced_short(clients: int) -> System:
    """Return ours with a word for two levels of each user, at least a byte: 8 bits, and 9 from 64 users on."""
    return System("sliced", 0.1, max(SHORTEST_WORD, shortest_word(clients, LEVELS)))


@dataclass(frozen=True)
class CohortRuns:
    """The runs with one number of users: with all seeds, and with the first seed only."""

    clients: int
    seeds: int = 1
    """How many: the one that was asked for, and those that follow."""
    systems: tuple[System, ...] = ()
    ablations: tuple[System, ...] = ()
    lr: float | None = LEARNING_RATE
    """None: that of the data set, for the embedded one."""
    samples: int | None = None
    """Training samples used; all unless said otherwise."""
    target: float | None = None
    """The accuracy to reach, if other than the training's."""


def paper_cohort(clients: int, seeds: int = 1, lr: float | None = LEARNING_RATE) -> CohortRuns:
    """Return SecAgg, the published pattern and ours with all seeds; with the first one also what tells them apart."""
    systems = (SECAGG, PAIRWISE, sliced_short(clients))
    return CohortRuns(clients, seeds, systems, (SLICED, PAIRWISE_OBSERVED), lr)


def in_waves(*waves: tuple[CohortRuns, ...]) -> tuple[CohortRuns, ...]:
    """Return cohorts in the order in which they are trained: those of a wave with their first seed, then the others."""
    return tuple(
        one
        for wave in waves
        for one in (*(replace(cohort, seeds=1, ablations=()) for cohort in wave if cohort.seeds > 1), *wave)
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
    dropout: float = DROPOUT

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
            threshold=majority(cohort.clients),
            group_size=cohort.clients if system.aggregator == "sliced" else None,
            keys_arrive=True,
            rounds=system.rounds or self.rounds,
            target_accuracy=system.target or cohort.target or self.target,
            aggregator=system.aggregator,
            alpha=system.alpha,
            modulus_bits=system.modulus_bits,
            normalisation=system.normalisation,
            downlink="model",  # As in the paper.
            seed=seed,
        )


def train_all(
    training: Training, seed: int, work: Work, more: Callable[[list[Json]], dict[str, Json]] = lambda _: {}
) -> Findings:
    """Train every system in every cohort with every seed, or as far as time allows; `more` follows from the runs.

    Every finished run is saved at once. Those that the result file holds already are not trained again.
    """
    todo = [(training.options(cohort, system, one), cohort, system) for cohort, system, one in in_order(training, seed)]
    planned = [system.rounds or training.rounds for _, _, system in todo]
    earlier = _earlier(training, work)
    done: dict[int, tuple[Json, Json]] = {}
    for number, (config, _, system) in enumerate(todo):
        if known := _known(earlier, config, system, planned[number]):
            done[number] = {**known[0], "target": config.target_accuracy}, known[1]
    tasks: dict[tuple[Any, ...], Task] = {}

    def found(complete: bool) -> Findings:
        runs, timings = ([done[number][part] for number in sorted(done)] for part in (0, 1))
        return Findings({"runs": runs} | more(runs), {"runs": timings}, complete)

    with ExitStack() as stack, suppress(OutOfTime):
        pools = Pools(stack)
        for number, (config, cohort, system) in enumerate(todo):
            if number in done:
                continue
            run = _opened(config, cohort, system, tasks, work)
            label = f"N={cohort.clients}, seed {config.seed}, {system.label}"
            _train(run, label, work, sum(planned[:number]), sum(planned), pools)
            lines = run.folder.metrics()
            numbers = _numbers(config, system, run, lines) | {"commit": work.commit}
            done[number] = numbers, _timings(config, system, lines)
            work.save(found(False))
    if not done:
        raise OutOfTime
    return found(len(done) == len(todo))


def in_order(training: Training, seed: int) -> list[tuple[CohortRuns, System, int]]:
    """Return all runs, each once: cohort by cohort as they are listed, seed by seed; ablations at the end."""
    every = [
        (cohort, system, seed + place)
        for cohort in training.cohorts
        for place in range(cohort.seeds)
        for system in cohort.systems
    ]
    every += [(cohort, system, seed) for cohort in training.cohorts for system in cohort.ablations]
    once: dict[tuple[Any, ...], tuple[CohortRuns, System, int]] = {}
    for cohort, system, one_seed in every:
        once.setdefault((cohort.clients, cohort.lr, system, one_seed), (cohort, system, one_seed))
    return list(once.values())


def _earlier(training: Training, work: Work) -> dict[tuple[Json, ...], tuple[Json, Json]]:
    """Return the runs of the result file by what identifies them, with their timings; of the same training only."""
    if work.earlier is None:
        return {}
    now, then = dataclasses.asdict(training), work.earlier["configuration"]["training"]
    if any(now[name] != then.get(name) for name in now if name not in ("cohorts", "rounds")):
        return {}
    pairs = zip(work.earlier["numbers"]["runs"], work.earlier["timings"]["runs"], strict=True)
    return {
        (*(run[name] for name in _NAME), run.get("target", then["target"])): (run, timing)
        for run, timing in pairs
        if clean(run["commit"])
    }


_NAME = ("clients", "seed", "lr", "samples", "label")


def _known(
    earlier: Mapping[tuple[Json, ...], tuple[Json, Json]], config: TrainingConfig, system: System, rounds: int
) -> tuple[Json, Json] | None:
    """Return a run that is finished as `rounds` has it: it reached the target by then, or had as many."""
    named = config.clients, config.seed, config.lr, config.samples, system.label
    found = earlier.get((*named, config.target_accuracy))
    if found is None:
        return None
    done, reached = found[0]["rounds"], found[0]["reached_target_at"]
    return found if done == rounds or (reached and done <= rounds) else None


def _opened(
    config: TrainingConfig, cohort: CohortRuns, system: System, tasks: dict[tuple[Any, ...], Task], work: Work
) -> FederatedRun:
    which = cohort.clients, config.seed, config.lr
    if which not in tasks:
        tasks.clear()  # One at a time: a task holds the whole data set.
        tasks[which] = Task.prepare(config, data_dir=work.data_dir)
    folder = work.folder / "runs" / f"{cohort.clients}-{config.lr:g}-{config.seed}-{system.key}"
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
    numbers = {
        "clients": config.clients,
        "seed": config.seed,
        "system": system.aggregator,
        "label": system.label,
        "lr": config.lr,
        "alpha": system.alpha,
        "modulus_bits": system.modulus_bits,
        "normalisation": system.normalisation,
        "dim": run.task.model.dim,
        "samples": config.samples,
        "rounds": len(lines),
        "failed_rounds": sum(line["status"] == "failed" for line in lines),
        "target": config.target_accuracy,
        "reached_target_at": run.reached_target_at,
        "accuracy": [line["accuracy"] for line in lines],
        "uploads": [line["uploads"] for line in lines],
        "effective_dropout": 1 - sum(line["uploads"] for line in lines) / (len(lines) * config.clients),
        "upload_bytes": [line["upload_bytes"] for line in lines],
        "total_upload_bytes": round(sum(line["uploads"] * line["upload_bytes"] for line in lines)),
    }
    return numbers | {"anonymity": anonymity(numbers, config.options.dropout)}


def round_parameters(run: Mapping[str, Any], dropout: float) -> Parameters:
    """Return the parameters of a run's rounds, from its numbers."""
    options = RoundOptions(
        pattern=PATTERN_OF[run["system"]],
        alpha=run["alpha"],
        threshold=majority(run["clients"]),
        dropout=dropout,
        modulus_bits=run["modulus_bits"],
    )
    return Parameters.create(run["clients"], run["dim"], options, session=bytes(32))


def anonymity(run: Mapping[str, Any], dropout: float) -> dict[str, Any]:
    """Return among how many honest users a value hides, on average and at least, and what part is read nonetheless.

    A third of the users adversarial, the server semi-honest, as in the paper.
    """
    params = round_parameters(run, dropout)
    honest = params.clients - colluder_count(params.clients, ADVERSARIES)
    shape = params.shape
    # Of a coordinate that is sent at all: in ours everybody sends it.
    share = 1.0 if shape.protects else shape.fraction()
    return {
        "adversaries": ADVERSARIES,
        "honest_contributors": share * (1 - dropout) * honest,
        "in_every_sum": kept_by(params, "semi-honest", ADVERSARIES).anonymity if shape.protects else 1,
        "revealed_fraction": expected_fraction(params, ADVERSARIES),
    }


def _timings(config: TrainingConfig, system: System, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "clients": config.clients,
        "seed": config.seed,
        "label": system.label,
        "training_seconds_per_round": fmean(line["training_seconds"] for line in lines),
        "client_seconds_per_round": fmean(line["client_seconds"]["total"] for line in lines),
        "server_seconds_per_round": fmean(line["server_seconds"]["total"] for line in lines),
    }
