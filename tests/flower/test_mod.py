"""Evaluation under the masks of the update."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Error, Message, MetricRecord, RecordDict

from flower.local_grid import LocalGrid, content_of, model, secagg, training_app, values
from sparsesecagg.flower import SecAgg, evaluate_first, secagg_mod

START = np.zeros(8, np.float32)


def evaluate(message: Message, context: Context) -> Message:
    """Return how far the received model is from zero, and clear it, as Flower's apps may."""
    place = float(values(content_of(message)["arrays"])["w"].mean())
    content_of(message)["arrays"].clear()
    partition = int(context.node_config["partition-id"])
    metrics = MetricRecord({"eval_acc": place + 0.1 * partition, "num-examples": 1})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def run(test: Any) -> tuple[SecAgg, Any, LocalGrid]:
    app = training_app(
        lambda p, a, r: {"w": a["w"] + np.float32(0.25)}, weight=lambda p: 4, mods=[secagg_mod, evaluate_first(test)]
    )
    grid = LocalGrid(app, 5)
    strategy = secagg(metrics={"eval_acc": 1.0}, alpha=0.5, gain=1.0)
    return strategy, strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=3), grid


def test_metrics_of_the_model_that_a_round_begins_with_are_averaged_and_never_seen_alone() -> None:
    strategy, result, grid = run(evaluate)
    found = [metrics["eval_acc"] for metrics in result.train_metrics_clientapp.values()]
    assert found == pytest.approx([0.2, 0.2 + 0.125, 0.2 + 0.25], abs=1e-3)  # In every round, though α is 0.5.
    assert [record.accuracy for record in strategy.history] == pytest.approx([0.325, 0.45, None], abs=1e-3)
    assert not any(reply.content.metric_records for _, reply in grid.replied)
    assert set(np.round(values(result.arrays)["w"], 2)) <= {0.25, 0.5}  # Training had its arrays.


def test_a_node_whose_evaluation_fails_has_dropped_out() -> None:
    def failing(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            return Message(Error(2, "no data"), reply_to=message)
        return evaluate(message, context)

    strategy, _, _ = run(failing)
    assert [record.survivors for record in strategy.history] == [4, 4, 4]
