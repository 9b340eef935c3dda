"""Rounds through Flower: exchanges, dropouts at every stage, failures that leave the model alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg, Result

from engines.local_grid import LocalGrid, Silent, model, round_of, stage_of, training_app, values
from sparsesecagg.flower import SecAgg

START = np.zeros(60, np.float32)


def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
    """Move by 0.01 in partition 0, by 0.02 in partition 1, and so on."""
    return {"w": arrays["w"] + np.float32(0.01 * (partition + 1))}


def run(grid: LocalGrid, rounds: int = 1, **settings: Any) -> tuple[SecAgg, Result]:
    options = {"timeout": 0.3, "poll_seconds": 0.01, "max_weight": 10, **settings}
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), **options)
    result = strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=rounds, timeout=options["timeout"])
    return strategy, result


def mean_of(partitions: Any) -> float:
    return float(np.mean([0.01 * (partition + 1) for partition in partitions]))


def silent(*faults: tuple[int, str, int]) -> Any:
    """Return a fault: node (by partition) never answers at a stage of a round."""

    def before(node: int, message: Message) -> None:
        if (node - 100, stage_of(message), round_of(message)) in faults:
            raise Silent

    return before


def raising(*faults: tuple[int, str, int]) -> Any:
    """Return a fault: node (by partition) answers with an exception at a stage of a round."""

    def before(node: int, message: Message) -> None:
        if (node - 100, stage_of(message), round_of(message)) in faults:
            raise RuntimeError("the disk is full")

    return before


class TestExchanges:
    def test_the_first_round_takes_four_and_every_later_one_three(self) -> None:
        strategy, _ = run(LocalGrid(training_app(step), 5), rounds=4)
        assert [record.exchanges for record in strategy.history] == [4, 3, 3, 3]

    def test_no_key_is_used_in_two_rounds(self) -> None:
        grid = LocalGrid(training_app(step), 4)
        run(grid, rounds=3)
        directories = {
            message.content["secagg"]["payload"] for _, message in grid.sent if stage_of(message) == "SHARE_KEYS"
        }
        assert len(directories) == 3
        keys = [
            directory[start : start + 32]
            for directory in directories
            for start in range(len(directory) - 32 * 12, len(directory), 32)
        ]
        assert len(set(keys)) == len(keys)

    def test_a_newcomer_is_asked_for_keys_and_the_others_are_not(self) -> None:
        grid = LocalGrid(training_app(step), 5)
        grid.online.discard(104)

        def arrive(node: int, message: Message) -> None:
            if round_of(message) == 1 and stage_of(message) == "UNMASK":
                grid.online.add(104)

        grid.before = arrive
        strategy, _ = run(grid, rounds=2)
        asked = [
            node for node, message in grid.sent if stage_of(message) == "ADVERTISE_KEYS" and round_of(message) == 2
        ]
        assert asked == [104]
        assert [record.exchanges for record in strategy.history] == [4, 4]
        assert [record.survivors for record in strategy.history] == [4, 5]

    def test_keys_that_were_announced_wait_for_the_next_round_of_their_node(self) -> None:
        """A node that sits out a round needs no extra exchange when it is back."""
        grid = LocalGrid(training_app(step), 5)

        def come_and_go(node: int, message: Message) -> None:
            if stage_of(message) == "UNMASK" and node == 104:
                (grid.online.discard if round_of(message) == 1 else grid.online.add)(102)

        grid.before = come_and_go
        strategy, _ = run(grid, rounds=3)
        assert [record.cohort for record in strategy.history] == [5, 4, 5]
        assert [record.exchanges for record in strategy.history] == [4, 3, 3]

    def test_two_strategies_may_follow_each_other_in_one_run(self) -> None:
        """Round numbers begin again, and the nodes keep their state."""
        grid = LocalGrid(training_app(step), 4)
        _, first = run(grid, rounds=2)
        _, second = run(grid, rounds=2)
        np.testing.assert_allclose(values(first.arrays)["w"], values(second.arrays)["w"], atol=1e-4)


class TestDropouts:
    @pytest.mark.parametrize("stage", ["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD"])
    @pytest.mark.parametrize("fault", [silent, raising], ids=["silent", "raising"])
    def test_whoever_drops_out_before_its_upload_is_not_in_the_mean(self, stage: str, fault: Any) -> None:
        grid = LocalGrid(training_app(step), 6, before=fault((1, stage, 1), (4, stage, 1)))
        strategy, result = run(grid)
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of([0, 2, 3, 5]), atol=1e-5)
        assert strategy.history[0].dropped[stage] == 2
        assert strategy.history[0].survivors == 4

    def test_whoever_drops_out_after_its_upload_is_in_the_mean(self) -> None:
        grid = LocalGrid(training_app(step), 6, before=silent((1, "UNMASK", 1), (4, "UNMASK", 1)))
        strategy, result = run(grid)
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of(range(6)), atol=1e-5)
        assert strategy.history[0].dropped["UNMASK"] == 2

    def test_somebody_else_may_drop_out_at_every_stage_of_one_round(self) -> None:
        faults = [(0, "ADVERTISE_KEYS", 1), (1, "SHARE_KEYS", 1), (2, "UPLOAD", 1), (3, "UNMASK", 1)]
        strategy, result = run(LocalGrid(training_app(step), 9, before=silent(*faults)))
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of(range(3, 9)), atol=1e-5)
        assert strategy.history[0].dropped == dict.fromkeys(["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"], 1)

    def test_a_raised_exception_costs_one_round_and_the_node_is_back_in_the_next(self) -> None:
        grid = LocalGrid(training_app(step), 5, before=raising((3, "UPLOAD", 1)))
        strategy, _ = run(grid, rounds=2)
        assert [record.survivors for record in strategy.history] == [4, 5]
        assert [record.exchanges for record in strategy.history] == [4, 4]  # It has spent its keys, and is asked anew.

    def test_a_node_that_owes_an_answer_is_not_asked_again(self) -> None:
        """In a simulation its next message would run on a stale copy of its state."""
        grid = LocalGrid(training_app(step), 5, before=silent((2, "UPLOAD", 1)))
        strategy, _ = run(grid, rounds=2)
        assert not [message for node, message in grid.sent if node == 102 and round_of(message) == 2]
        assert strategy.history[1].dropped["ADVERTISE_KEYS"] == 1
        assert strategy.history[1].failure is None

    def test_a_late_answer_makes_the_node_free_again(self) -> None:
        grid = LocalGrid(training_app(step), 5, before=silent((2, "UPLOAD", 1)))
        late = {}

        def remember(node: int, message: Message) -> None:
            if (node, stage_of(message), round_of(message)) == (102, "UPLOAD", 1):
                late["id"] = message.metadata.message_id
                raise Silent
            if (stage_of(message), round_of(message)) == ("UNMASK", 2) and late:
                # Its answer to round 1 arrives at last, and is too late for any sum.
                key = late.pop("id")
                grid._ready[key] = [next(m for n, m in grid.replied if n == 101)]
                grid._ready[key][0].metadata.__dict__["_reply_to_message_id"] = key

        grid.before = remember
        strategy, _ = run(grid, rounds=3)
        assert [record.survivors for record in strategy.history] == [4, 4, 5]


class TestFailures:
    def test_below_the_threshold_the_round_fails_the_model_stays_and_the_next_round_works(self) -> None:
        faults = [(partition, "UPLOAD", 1) for partition in range(3)]
        strategy, result = run(LocalGrid(training_app(step), 5, before=raising(*faults)), rounds=2)
        failed, good = strategy.history
        assert failed.failed_at == "UPLOAD"
        assert "2 users left at UPLOAD, 3 are needed" in str(failed.failure)
        assert result.train_metrics_clientapp[1]["secagg-failed"] == 1
        assert good.failure is None
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of(range(5)), atol=1e-5)

    @pytest.mark.parametrize("stage", ["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"])
    def test_a_round_in_which_everybody_falls_silent_ends_in_time(self, stage: str) -> None:
        faults = [(partition, stage, 1) for partition in range(4)]
        strategy, result = run(LocalGrid(training_app(step), 4, before=silent(*faults)))
        assert strategy.history[0].failed_at == stage
        np.testing.assert_array_equal(values(result.arrays)["w"], START)

    def test_if_every_round_fails_the_result_is_the_initial_model(self) -> None:
        grid = LocalGrid(training_app(step), 4, before=raising(*[(p, "UPLOAD", r) for p in range(4) for r in (1, 2)]))
        strategy, result = run(grid, rounds=2)
        assert all(record.failure for record in strategy.history)
        np.testing.assert_array_equal(values(result.arrays)["w"], START)

    def test_clients_refuse_to_open_a_thin_block_and_the_reason_reaches_the_server(self) -> None:
        grid = LocalGrid(training_app(step), 6, before=raising((0, "UPLOAD", 1)))
        strategy, result = run(grid, min_survivors=3, alpha=0.5)
        failed = strategy.history[0]
        assert failed.failed_at == "UNMASK"
        assert "would be opened with 2 survivors, 3 are the least" in str(failed.failure)
        np.testing.assert_array_equal(values(result.arrays)["w"], START)

    def test_what_a_train_function_raises_reaches_the_log_and_nothing_of_ours_does(self, caplog: Any) -> None:
        def fail(partition: int, arrays: Any, server_round: int) -> Any:
            if partition == 1:
                raise ValueError("no data on this node")
            return step(partition, arrays, server_round)

        strategy, result = run(LocalGrid(training_app(fail), 5))
        assert "no data on this node" in caplog.text
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of([0, 2, 3, 4]), atol=1e-5)
        assert strategy.history[0].dropped["UPLOAD"] == 1
