"""The context of a round: a node that is told something else masks apart from the rest, and takes no part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from flower.local_grid import LocalGrid, content_of, model, secagg, stage_of, training_app, travel, values
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.flower import SecAgg
from sparsesecagg.flower.messages import CONTROL, Packet, Terms, app_digest, read_packet
from sparsesecagg.protocol import Stage

CONFIG = bytes(32)
TERMS = Terms((0.5, 2.0), {"loss": 10.0})


def content(**config: Any) -> RecordDict:
    return RecordDict({"arrays": model(a=np.arange(4.0)), "config": ConfigRecord({"lr": 0.1, **config})})


def digest(content: RecordDict, terms: Terms = TERMS, message_type: str = "train", config: bytes = CONFIG) -> bytes:
    return terms.digest(content, message_type, config)


def told(**run_config: Any) -> bytes:
    return app_digest(Context(run_id=1, node_id=2, node_config={}, state=RecordDict(), run_config=run_config))


class TestDigest:
    def test_it_tells_types_of_messages_apart(self) -> None:
        assert digest(content(), message_type="train.slowly") != digest(content())

    @pytest.mark.parametrize("other", [{"lr": 0.2}, {"lr": "0.1"}, {"lr": 0.1, "epochs": 1}, {}, {"lr": True}], ids=str)
    def test_it_tells_configurations_of_the_run_apart(self, other: dict[str, Any]) -> None:
        assert told(**other) != told(lr=0.1)
        assert digest(content(), config=told(**other)) != digest(content(), config=told(lr=0.1))

    def test_the_order_in_which_a_run_is_configured_does_not_matter(self) -> None:
        assert told(a=1, b=2.0) == told(b=2.0, a=1)

    def test_it_is_the_same_on_the_other_side_of_the_network(self) -> None:
        sent = content(flag=True, names=["a", "b"], blob=b"\x00\xff", count=3)
        message = travel(Message(sent, 100, "train"))
        assert digest(message.content) == digest(sent)

    @pytest.mark.parametrize(
        "arrays",
        [
            {"b": np.arange(4.0)},
            {"a": np.arange(4.0) + 1e-12},
            {"a": np.arange(4.0).reshape(2, 2)},
            {"a": np.arange(4.0).astype(np.float32)},
            {"a": np.arange(4.0), "b": np.zeros(0)},
        ],
        ids=["name", "value", "shape", "type", "one more"],
    )
    def test_it_tells_models_apart(self, arrays: dict[str, Any]) -> None:
        other = content()
        other["arrays"] = model(**arrays)
        assert digest(other) != digest(content())

    @pytest.mark.parametrize("config", [{"lr": 0.0}, {"lr": 0.1, "more": 1}, {"lr": "0.1"}], ids=str)
    def test_it_tells_configurations_apart(self, config: dict[str, Any]) -> None:
        assert digest(content(**config)) != digest(content())

    @pytest.mark.parametrize(
        "other",
        [
            Terms((0.5, 2.1), {"loss": 10.0}),
            Terms((0.5, 2.0), {"loss": 11.0}),
            Terms((0.5, 2.0), {"lose": 10.0}),
            Terms((0.5, 2.0), {}),
        ],
        ids=["scale", "bound", "name", "metrics"],
    )
    def test_it_tells_terms_apart(self, other: Terms) -> None:
        assert digest(content(), other) != digest(content())


class TestReading:
    def packet(self, **fields: Any) -> Packet:
        control = RecordDict(Packet(Stage.UPLOAD, 1, **TERMS.entries()).records()).config_records[CONTROL]
        return read_packet(RecordDict({CONTROL: ConfigRecord({**control, **fields})}))

    def test_what_is_written_is_read(self) -> None:
        assert Terms.read(self.packet()) == TERMS
        without = Terms((1.0,))
        assert Terms.read(Packet(Stage.UPLOAD, 1, b"", **without.entries())) == without

    @pytest.mark.parametrize(
        "fields",
        [
            {"scales": [1.0, -1.0]},
            {"scales": [float("nan")]},
            {"scales": 1.0},
            {"bounds": []},
            {"bounds": [0.0]},
            {"metrics": ["loss", "loss"], "bounds": [1.0, 2.0]},
            {"metrics": "loss"},
        ],
        ids=str,
    )
    def test_what_could_not_be_computed_with_is_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(MalformedMessage):
            Terms.read(self.packet(**fields))


class TestAttack:
    """A server that wants one client's update alone tells the others terms under which theirs vanish."""

    def run(self, before: Any, **settings: Any) -> tuple[SecAgg, np.ndarray]:
        def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
            return {"w": arrays["w"] + np.float32(0.01 * (partition + 1))}

        app = training_app(step, metrics=lambda partition: {"loss": 1.0})
        strategy = secagg(threshold=3, **settings)
        grid = LocalGrid(app, 5, before=before)
        result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(30, np.float32)), num_rounds=1)
        return strategy, values(result.arrays)["w"]

    @pytest.mark.parametrize(
        "lie",
        [
            {"scales": [1e9]},
            {"bounds": [1e9]},
            {"metrics": ["loss", "age"], "bounds": [1.0, 1.0]},
        ],
        ids=str,
    )
    def test_other_terms_for_one_client_make_it_refuse(self, lie: dict[str, Any]) -> None:
        def tamper(node: int, message: Message) -> None:
            if node == 101 and stage_of(message) == "UPLOAD":
                content_of(message)["secagg"] = ConfigRecord({**content_of(message)["secagg"], **lie})

        strategy, mean = self.run(tamper, metrics={"loss": 2.0})
        assert strategy.history[0].dropped["UPLOAD"] == 1
        np.testing.assert_allclose(mean, np.mean([0.01, 0.03, 0.04, 0.05]), atol=1e-5)

    def test_so_does_another_configuration_for_training(self) -> None:
        def tamper(node: int, message: Message) -> None:
            if node == 101 and stage_of(message) == "UPLOAD":
                content_of(message)["config"] = ConfigRecord({**content_of(message)["config"], "lr": 0.0})

        strategy, _ = self.run(tamper)
        assert strategy.history[0].dropped["UPLOAD"] == 1

    def test_so_does_a_record_that_was_slipped_in(self) -> None:
        def tamper(node: int, message: Message) -> None:
            if node == 101 and stage_of(message) == "UPLOAD":
                content_of(message)["extra"] = MetricRecord({"freeze": 1})

        strategy, _ = self.run(tamper)
        assert strategy.history[0].dropped["UPLOAD"] == 1

    def test_so_does_another_configuration_of_the_run(self) -> None:
        """It comes with every task and never passes through the strategy: a learning rate of zero for all but one."""

        def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
            return {"w": arrays["w"] + np.float32(0.01 * (partition + 1))}

        grid = LocalGrid(training_app(step), 5, run_config={"learning-rate": 0.1})
        grid.contexts[101].run_config = {"learning-rate": 0.0}
        strategy = secagg(threshold=3)
        result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(30, np.float32)), num_rounds=2)
        assert [record.dropped["UPLOAD"] for record in strategy.history] == [1, 1]
        np.testing.assert_allclose(values(result.arrays)["w"], 2 * np.mean([0.01, 0.03, 0.04, 0.05]), atol=1e-5)

    def test_one_that_changes_later_for_all_but_one_leaves_nothing_to_open(self) -> None:
        grid = LocalGrid(training_app(lambda p, a, r: a), 5, run_config={"learning-rate": 0.1})

        def later(node: int, message: Message) -> None:
            if stage_of(message) == "UPLOAD" and node != 101:
                grid.contexts[node].run_config = {"learning-rate": 0.0}

        grid.before = later
        strategy = secagg(threshold=3)
        strategy.start(grid=grid, initial_arrays=model(w=np.zeros(30, np.float32)), num_rounds=1)
        assert strategy.history[0].failed_at == "UPLOAD"
        assert "4 node(s) refused: WrongBinding" in str(strategy.history[0].failure)
