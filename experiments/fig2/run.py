"""Train with plain averaging and note every user's locations in each round."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common.experiment import Findings
from experiments.common.work import OutOfTime, Work
from experiments.fig2.config import Config
from sparsesecagg.learning.config import TrainingConfig
from sparsesecagg.learning.federated import Task
from sparsesecagg.learning.models.base import Vector
from sparsesecagg.learning.seeds import Purpose, generator
from sparsesecagg.learning.workers import TrainingPool


def run(config: Config, seed: int, work: Work) -> Findings:
    """Train once per way of dealing out the data, or as far as time allows."""
    runs, complete = [], True
    for number, partition in enumerate(config.partitions):
        training = TrainingConfig.create(
            config.dataset,
            model=config.model,
            samples=config.samples,
            clients=config.clients,
            partition=partition,
            shards=config.shards,
            aggregator="plain",
            dropout=0.0,
            rounds=config.rounds,
            seed=seed,
        )
        rounds, trained = _train(config, training, work, number * config.rounds)
        complete &= len(rounds) == config.rounds
        if rounds:
            runs.append({"partition": partition, **trained, "rounds": rounds})
    if not runs:
        raise OutOfTime
    return Findings({"runs": runs}, {}, complete)


def _train(
    config: Config, training: TrainingConfig, work: Work, before: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the overlaps of every round; each round is a cell that ends with the model."""
    task = Task.prepare(training, data_dir=work.data_dir)
    parameters, total = task.initial, config.rounds * len(config.partitions)
    rounds: list[dict[str, Any]] = []
    with ExitStack() as stack:
        pools: list[TrainingPool] = []

        def compute() -> dict[str, Any]:
            if not pools:  # Not before it is needed: all rounds may be there already.
                pools.append(stack.enter_context(task.pool(training)))
            return _round(config, training, pools[0], parameters, len(rounds) + 1)

        try:
            for number in range(1, config.rounds + 1):
                found = work.cell(f"{training.partition}-{number:03d}", compute)
                parameters = np.frombuffer(base64.b64decode(found.pop("model")), "<f4").astype(np.float32)
                rounds.append(found)
                top = found["top"]["mean"]
                work.report(f"{training.partition}, round {number}: top-K {top:.1%}", before + number, total)
        except OutOfTime:
            pass
    return rounds, {"dim": task.model.dim, "model": task.model.name, "samples": len(task.dataset.train_y)}


def _round(
    config: Config, training: TrainingConfig, pool: TrainingPool, parameters: Vector, number: int
) -> dict[str, Any]:
    """Let all users train; return the overlaps, the accuracy and the new model."""
    dim, users = len(parameters), range(config.clients)
    kept = int(config.fraction * dim)
    largest, drawn = np.zeros((2, config.clients, dim), np.bool_)
    total = np.zeros(dim)
    for trained in pool.train(parameters, users, number):
        largest[trained.user, np.argpartition(-np.abs(trained.update), kept - 1)[:kept]] = True
        random = generator(training.seed, Purpose.SPARSITY, number, trained.user)
        drawn[trained.user, random.choice(dim, kept, replace=False, shuffle=False)] = True
        total += trained.update
    after = (parameters + total / config.clients).astype(np.float32)
    evaluation = pool.evaluate(after)
    return {
        "round": number,
        "top": overlap(largest),
        "random": overlap(drawn),
        "accuracy": evaluation.correct / evaluation.samples,
        "model": base64.b64encode(after.astype("<f4").tobytes()).decode(),
    }


def overlap(chosen: NDArray[np.bool_]) -> dict[str, float]:
    """Return mean and standard deviation, over pairs of users, of the share of locations that both chose."""
    kept = np.count_nonzero(chosen[0])
    common = chosen.astype(np.float32) @ chosen.astype(np.float32).T  # Counts below 2^24 are exact.
    shares = common[np.triu_indices(len(chosen), 1)].astype(np.float64) / kept
    return {"mean": float(shares.mean()), "deviation": float(shares.std())}
