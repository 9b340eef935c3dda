"""The search for Figure 3's learning rates, on a validation split: the test set takes no part in it.

The last images of the training set are held out. Each rate trains for a few rounds with plain averaging of all users,
without protocol or dropouts, so that no system is favoured; the rate that does best on the images held out is used for
all systems.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np

from experiments.common.work import Work
from experiments.fig3.config import Search
from sparsesecagg.learning.config import TrainingConfig
from sparsesecagg.learning.data import Dataset, load_dataset
from sparsesecagg.learning.federated import Task


def search(config: Search, dataset: str, seed: int, work: Work) -> list[dict[str, Any]]:
    """Return the accuracies on the images held out, by cohort and rate, and which rate was the best of each cohort."""
    found = []
    total = len(config.cohorts) * len(config.rates)
    for place, clients in enumerate(config.cohorts):
        tried = []
        for number, rate in enumerate(config.rates):
            work.report(f"search, N={clients}, learning rate {rate:g}", place * len(config.rates) + number, total)
            tried.append(
                work.cell(f"search-{clients}-{rate:g}", partial(_try, config, dataset, clients, rate, seed, work))
            )
        best = max(tried, key=lambda one: float(one["accuracy"][-1]))
        found.append({"clients": clients, "tried": tried, "chosen": best["lr"]})
    return found


def chosen_rate(found: list[dict[str, Any]], clients: int) -> float:
    """Return the rate for a cohort: of the smallest one searched that is as large."""
    searched = sorted(found, key=lambda one: int(one["clients"]))
    fitting = next((one for one in searched if one["clients"] >= clients), searched[-1])
    return float(fitting["chosen"])


def _try(config: Search, dataset: str, clients: int, rate: float, seed: int, work: Work) -> dict[str, Any]:
    training = TrainingConfig.create(
        dataset, clients=clients, lr=rate, aggregator="plain", dropout=0.0, rounds=config.rounds, seed=seed
    )
    task = Task.prepare(training, dataset=held_out(load_dataset(dataset, work.data_dir), config.share))
    parameters, accuracies = task.initial, []
    with task.pool(training) as pool:
        for number in range(1, config.rounds + 1):
            updates = [one.update for one in pool.train(parameters, range(clients), number)]
            parameters = (parameters + np.mean(updates, axis=0)).astype(np.float32)
            evaluation = pool.evaluate(parameters)
            accuracies.append(evaluation.correct / evaluation.samples)
    return {"lr": rate, "accuracy": accuracies, "validation_samples": len(task.dataset.test_y)}


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
