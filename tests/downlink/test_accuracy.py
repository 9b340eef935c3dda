"""Training that goes on from the rounded model ends where whole models do."""

from __future__ import annotations

import numpy as np
import pytest

from sparsesecagg.downlink import STEP_BITS, Replica, StepLog
from sparsesecagg.lab.learning.data import load_dataset, make_partition
from sparsesecagg.lab.learning.models import DenseNetwork, LocalTraining

pytest.importorskip("sklearn")

USERS, ROUNDS = 10, 25
HOW = LocalTraining(epochs=2, batch=10, lr=0.1)


def accuracies(hidden: tuple[int, ...], bits: int | None, seed: int = 0) -> list[float]:
    """Return the accuracy in percent after each round; users train on what their replica holds."""
    digits = load_dataset("digits")
    model = DenseNetwork(64, 10, hidden)
    users = make_partition(digits, "shards", USERS, seed, shards=40).indices
    log = StepLog(model.initial(seed), bits or 4)
    replica = Replica.from_model(log.for_node(None))
    parameters, found = log.model, []
    for number in range(ROUNDS):
        updates = [
            model.train_local(parameters, digits.train_x[own], digits.train_y[own], HOW, 1000 * number + user)
            - parameters
            for user, own in enumerate(users)
        ]
        target = parameters + np.mean(updates, axis=0, dtype=np.float32)
        if bits is None:
            parameters = target
        else:
            log.advance(target)
            replica.catch_up(log.for_node(replica.sequence, replica.digest))
            parameters = replica.model
        result = model.evaluate(parameters, digits.test_x, digits.test_y)
        found.append(100 * result.correct / result.samples)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [(), (64,)], ids=["softmax regression", "perceptron"])
def test_every_width_ends_within_a_fraction_of_a_point_of_whole_models(hidden: tuple[int, ...]) -> None:
    """The mean of the last five rounds; one test sample is 0.28 points."""
    whole = np.mean(accuracies(hidden, None)[-5:])
    assert whole > 90
    for bits in STEP_BITS:
        assert abs(np.mean(accuracies(hidden, bits)[-5:]) - whole) < {8: 0.3, 4: 0.4, 2: 0.6}[bits]
