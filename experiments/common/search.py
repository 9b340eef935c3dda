"""The search for learning rates other than the paper's, on a validation split: the test set takes no part in it.

The last images of the training set are held out. Each rate trains for a few rounds with plain averaging over some
users, without protocol or dropouts, so that no system is favoured; the rate that is best on the images held out is
used for all systems.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from experiments.common.work import Work
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.data import Dataset, load_dataset
from sparsesecagg.lab.learning.federated import Task


@dataclass(frozen=True)
class Search:
    """Which learning rates are tried, for how long, and on what part of the training set."""

    above: int
    """Cohorts of more users than this take a rate that was searched for; others have the paper's."""
    cohorts: tuple[int, ...]
    """Those that are searched; others take the rate of the next larger one."""
    rates: tuple[float, ...] = (0.01, 0.02, 0.05)
    rounds: int = 2
    users: int = 25
    """Of each cohort, who train."""
    share: float = 0.1
    """Of the training samples, how many are held out: the last ones."""


@dataclass(frozen=True)
class Trial:
    """What is trained in a search."""

    dataset: str
    partition: str
    model: str | None


def search(config: Search, trial: Trial, seed: int, work: Work) -> list[dict[str, Any]]:
    """Return the accuracies on the images held out, by cohort and rate, and which rate was the best of each cohort."""
    found = []
    total = len(config.cohorts) * len(config.rates)
    for place, clients in enumerate(config.cohorts):
        tried = []
        for number, rate in enumerate(config.rates):
            work.report(f"search, N={clients}, learning rate {rate:g}", place * len(config.rates) + number, total)
            tried.append(
                work.cell(f"search-{clients}-{rate:g}", partial(_try, config, trial, clients, rate, seed, work))
            )
        best = max(tried, key=lambda one: float(one["accuracy"][-1]))
        found.append({"clients": clients, "tried": tried, "chosen": best["lr"]})
    return found


def chosen_rate(config: Search, found: list[dict[str, Any]], clients: int) -> float | None:
    """Return the rate for a cohort: of the smallest one searched that is as large; None for the paper's."""
    if clients <= config.above:
        return None
    searched = sorted(found, key=lambda one: int(one["clients"]))
    fitting = next((one for one in searched if one["clients"] >= clients), searched[-1])
    return float(fitting["chosen"])


def _try(config: Search, trial: Trial, clients: int, rate: float, seed: int, work: Work) -> dict[str, Any]:
    training = TrainingConfig.create(
        trial.dataset,
        partition=trial.partition,
        model=trial.model,
        clients=clients,
        lr=rate,
        aggregator="plain",
        dropout=0.0,
        rounds=config.rounds,
        seed=seed,
    )
    task = Task.prepare(training, dataset=held_out(load_dataset(trial.dataset, work.data_dir), config.share))
    users = range(min(clients, config.users))
    parameters, accuracies = task.initial, []
    with task.pool(training) as pool:
        for number in range(1, config.rounds + 1):
            updates = [one.update for one in pool.train(parameters, users, number)]
            parameters = (parameters + np.mean(updates, axis=0)).astype(np.float32)
            evaluation = pool.evaluate(parameters)
            accuracies.append(evaluation.correct / evaluation.samples)
    return {
        "lr": rate,
        "accuracy": accuracies,
        "validation_samples": len(task.dataset.test_y),
        "users": len(users),
    }


def held_out(data: Dataset, share: float) -> Dataset:
    """Return a data set whose test samples are the last `share` of the training samples."""
    kept = round((1 - share) * len(data.train_y))
    return dataclasses.replace(
        data,
        train_x=data.train_x[:kept],
        train_y=data.train_y[:kept],
        test_x=data.train_x[kept:],
        test_y=data.train_y[kept:],
    )
