"""A small federated training whose model goes down in steps, by ours or by another way to round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.downlink import Replica, StepLog
from sparsesecagg.lab.learning.data import Dataset, load_dataset, make_partition
from sparsesecagg.lab.learning.models import DenseNetwork, LocalTraining

Vector = NDArray[np.float32]
Advance = Callable[[Vector], Vector]
"""The model that training asks for → the model that everybody holds; called once per round."""

LAST = 5
"""Accuracy is the mean over this many last rounds."""


@dataclass(frozen=True)
class Task:
    """What is trained: `chosen` of `users` train in each round, on up to `samples` samples each."""

    dataset: str
    partition: str
    users: int
    chosen: int
    samples: int
    hidden: int
    rounds: int
    how: LocalTraining


@cache
def _load(name: str) -> Dataset:
    return load_dataset(name)


def whole_models(start: Vector, seed: int) -> Advance:  # noqa: ARG001 (rounding needs both)
    """Send whole models: what training asks for is what everybody holds."""
    return lambda target: target


def steps(bits: int) -> Callable[[Vector, int], Advance]:
    """Send steps of ours; the model is the one that a node rebuilds from the bytes."""

    def begin(start: Vector, seed: int) -> Advance:  # noqa: ARG001
        log = StepLog(start, bits)
        replica = Replica.from_model(log.for_node(None))

        def advance(target: Vector) -> Vector:
            log.advance(target)
            replica.catch_up(log.for_node(replica.sequence, replica.digest))
            return replica.model

        return advance

    return begin


def accuracy(task: Task, begin: Callable[[Vector, int], Advance], seed: int) -> float:
    """Return the accuracy in percent at the end of a run."""
    data = _load(task.dataset)
    x, y = data.train_x.reshape(len(data.train_x), -1), data.train_y
    network = DenseNetwork(x.shape[1], len(data.classes), (task.hidden,))
    users = make_partition(data, task.partition, task.users, seed).indices
    model = network.initial(seed)
    advance, choices, found = begin(model, seed), np.random.default_rng(seed), list[float]()
    for number in range(task.rounds):
        updates = []
        for user in choices.choice(task.users, task.chosen, replace=False):
            own = users[user][: task.samples]
            updates.append(
                network.train_local(model, x[own], y[own], task.how, task.users * number + int(user)) - model
            )
        model = advance(model + np.mean(updates, axis=0, dtype=np.float32))
        result = network.evaluate(model, data.test_x, data.test_y)
        found.append(100 * result.correct / result.samples)
    return fmean(found[-LAST:])
