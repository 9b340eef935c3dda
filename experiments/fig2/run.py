"""Train with each way of choosing locations, and note every user's in each round."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common.experiment import Findings
from experiments.common.work import OutOfTime, Work
from experiments.fig2.config import Config
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import Task
from sparsesecagg.lab.learning.models import Vector
from sparsesecagg.lab.learning.seeds import Purpose, generator
from sparsesecagg.lab.learning.workers import TrainingPool


def run(config: Config, seed: int, work: Work) -> Findings:
    """Train once per way of dealing out the data and of choosing locations, or as far as time allows."""
    runs: list[dict[str, Any]] = []
    every = range(config.clients)
    jobs = [
        (partition, kind, config.model, config.samples, every, config.rounds)
        for partition in config.partitions
        for kind in config.kinds
    ]
    if config.large:
        few = range(config.large.users)
        jobs += [
            (partition, "top", config.large.model, None, few, config.large.rounds) for partition in config.partitions
        ]
    total, before, complete = sum(job[-1] for job in jobs), 0, True
    for partition, kind, model, samples, users, wanted in jobs:
        training = TrainingConfig.create(
            config.dataset,
            model=model,
            samples=samples,
            clients=config.clients,
            partition=partition,
            shards=config.shards,
            aggregator="plain",
            dropout=0.0,
            rounds=wanted,
            seed=seed,
        )
        task = Task.prepare(training, data_dir=work.data_dir)
        report = partial(_report, work, f"{partition}, {kind}, {task.model.name}", before, total)
        rounds = _train(config, training, task, users, kind, work, report)
        before += wanted
        complete &= len(rounds) == wanted
        if rounds:
            runs.append(
                {
                    "partition": partition,
                    "kind": kind,
                    "model": task.model.name,
                    "dim": task.model.dim,
                    "samples": len(task.dataset.train_y),
                    "users": len(users),
                    "rounds": rounds,
                }
            )
    if not runs:
        raise OutOfTime
    return Findings({"runs": runs}, {}, complete)


def _report(work: Work, what: str, before: int, total: int, found: dict[str, Any]) -> None:
    work.report(f"{what}, round {found['round']}: {found['overlap']['mean']:.1%}", before + found["round"], total)


def _train(
    config: Config, training: TrainingConfig, task: Task, users: range, kind: str, work: Work, report: Any
) -> list[dict[str, Any]]:
    """Return the overlaps of every round; each round is a cell that ends with the model."""
    parameters = task.initial
    rounds: list[dict[str, Any]] = []
    with ExitStack() as stack:
        pools: list[TrainingPool] = []

        def compute() -> dict[str, Any]:
            if not pools:  # Not before it is needed: all rounds may be there already.
                pools.append(stack.enter_context(task.pool(training)))
            return _round(config, training, pools[0], parameters, users, kind, len(rounds) + 1)

        try:
            for number in range(1, training.rounds + 1):
                found = work.cell(f"{training.partition}-{kind}-{task.model.name}-{number:03d}", compute)
                parameters = np.frombuffer(base64.b64decode(found.pop("model")), "<f4").astype(np.float32)
                rounds.append(found)
                report(found)
        except OutOfTime:
            pass
    return rounds


def _round(
    config: Config,
    training: TrainingConfig,
    pool: TrainingPool,
    parameters: Vector,
    users: range,
    kind: str,
    number: int,
) -> dict[str, Any]:
    """Let `users` train and send what they choose; return the overlap, the accuracy and the new model."""
    dim = len(parameters)
    kept = int(config.fraction * dim)
    chosen = np.zeros((len(users), dim), np.bool_)
    total = np.zeros(dim)
    for place, trained in enumerate(pool.train(parameters, users, number)):
        if kind == "random":
            random = generator(training.seed, Purpose.SPARSITY, number, trained.user)
            chosen[place, random.choice(dim, kept, replace=False, shuffle=False)] = True
        else:
            chosen[place, np.argpartition(-np.abs(trained.update), kept - 1)[:kept]] = True
        total += trained.update if kind == "dense" else np.where(chosen[place], trained.update, 0)
    # rand-K is scaled by d/K, as everywhere: its mean is then that of dense averaging. top-K is not, as usual.
    scale = dim / kept if kind == "random" else 1.0
    after = (parameters + scale * total / len(users)).astype(np.float32)
    evaluation = pool.evaluate(after)
    return {
        "round": number,
        "overlap": overlap(chosen),
        "accuracy": evaluation.correct / evaluation.samples,
        "model": base64.b64encode(after.astype("<f4").tobytes()).decode(),
    }


def overlap(chosen: NDArray[np.bool_]) -> dict[str, float]:
    """Return mean and standard deviation, over pairs of users, of the share of locations that both chose."""
    kept = np.count_nonzero(chosen[0])
    common = chosen.astype(np.float32) @ chosen.astype(np.float32).T  # Counts below 2^24 are exact.
    shares = common[np.triu_indices(len(chosen), 1)].astype(np.float64) / kept
    return {"mean": float(shares.mean()), "deviation": float(shares.std())}
