"""Secure aggregation on one side only: it fails at once, and says which line is missing where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from flower.local_grid import LocalGrid, model, secagg, stage_of, training_app
from sparsesecagg.flower import MissingMod, secagg_mod

START = model(w=np.zeros(20, np.float32))


def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
    return {"w": arrays["w"] + np.float32(1)}


class TestServerOnly:
    def test_a_train_function_that_trips_over_the_key_exchange_shows_that_the_mod_is_missing(self) -> None:
        grid = LocalGrid(training_app(step, mods=[]), 4)
        with pytest.raises(MissingMod, match=r"the line @app.train\(mods=\[secagg_mod\]\) is missing in it"):
            secagg().start(grid=grid, initial_arrays=START)

    def test_so_does_a_train_function_that_answers_anyway(self) -> None:
        app = ClientApp()

        @app.train()
        def train(message: Message, context: Context) -> Message:
            return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

        with pytest.raises(MissingMod, match="it sent a plain reply"):
            secagg().start(grid=LocalGrid(app, 4), initial_arrays=START)

    def test_the_model_has_not_been_sent_by_then(self) -> None:
        grid = LocalGrid(training_app(step, mods=[]), 4)
        with pytest.raises(MissingMod):
            secagg().start(grid=grid, initial_arrays=START)
        assert {stage_of(message) for _, message in grid.sent} == {"ADVERTISE_KEYS"}
        assert not any(message.content.array_records for _, message in grid.sent)

    def test_a_few_nodes_without_the_mod_are_dropouts_and_named_in_the_log(self, caplog: Any) -> None:
        """Otherwise one node with an old app could stop everybody's run."""
        plain, secure = training_app(step, mods=[]), training_app(step)

        class Mixed(LocalGrid):
            def _run(self, message: Message) -> list[Message]:
                self.app = plain if message.metadata.dst_node_id == 101 else secure
                return super()._run(message)

        strategy = secagg()
        strategy.start(grid=Mixed(secure, 5), initial_arrays=START, num_rounds=1)
        assert strategy.history[0].survivors == 4
        assert "either the line @app.train(mods=[secagg_mod]) is missing" in caplog.text


class TestClientOnly:
    def test_the_client_refuses_and_names_the_line_that_the_server_lacks(self, caplog: Any) -> None:
        grid = LocalGrid(training_app(step), 4)
        FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=START, num_rounds=1)
        assert len(grid.replied) == 4
        for _, reply in grid.replied:
            assert "the line strategy = SecAgg(FedAvg(...)) is missing in the ServerApp" in str(reply.error.reason)
        assert "is missing in the ServerApp" in caplog.text

    def test_nothing_was_trained(self) -> None:
        trained: list[int] = []

        def watch(partition: int, arrays: Any, server_round: int) -> Any:
            trained.append(partition)
            return step(partition, arrays, server_round)

        FedAvg(fraction_evaluate=0.0).start(grid=LocalGrid(training_app(watch), 4), initial_arrays=START, num_rounds=1)
        assert not trained

    def test_evaluation_passes_the_mod_untouched_even_if_it_wraps_the_whole_app(self) -> None:
        app = ClientApp(mods=[secagg_mod])

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            return Message(
                RecordDict({"metrics": MetricRecord({"num-examples": 1, "accuracy": 0.25})}), reply_to=message
            )

        strategy = FedAvg(fraction_train=0.0)
        result = strategy.start(grid=LocalGrid(app, 4), initial_arrays=START, num_rounds=1)
        assert result.evaluate_metrics_clientapp[1]["accuracy"] == 0.25


def test_a_mod_that_runs_before_ours_is_told_where_to_go() -> None:
    def reads_arrays(message: Message, context: Context, call_next: Any) -> Message:
        _ = message.content["arrays"]
        return call_next(message, context)  # type: ignore[no-any-return]

    grid = LocalGrid(training_app(step, mods=[reads_arrays, secagg_mod]), 4)
    with pytest.raises(MissingMod, match=r"or another mod runs first: put secagg_mod first"):
        secagg().start(grid=grid, initial_arrays=START)
