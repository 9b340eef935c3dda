"""Rounds through Flower: exchanges, dropouts at every stage, failures that leave the model alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message
from flwr.serverapp.strategy import FedAvg, Result

from flower.local_grid import LocalGrid, Silent, content_of, model, round_of, secagg, stage_of, training_app, values
from sparsesecagg.flower import RefusedByAll, SecAgg

START = np.zeros(60, np.float32)


def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
    """Move by 0.01 in partition 0, by 0.02 in partition 1, and so on."""
    return {"w": arrays["w"] + np.float32(0.01 * (partition + 1))}


def run(grid: LocalGrid, rounds: int = 1, inner: Any = None, **settings: Any) -> tuple[SecAgg, Result]:
    settings = {"threshold": len(grid.online) // 2 + 1, **settings}
    strategy = secagg(inner, **settings)
    return strategy, strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=rounds, timeout=0.3)


def mean_of(partitions: Any) -> float:
    return float(np.mean([0.01 * (partition + 1) for partition in partitions]))


def silent(*faults: tuple[int, str, int]) -> Any:
    """Return a fault: node (by partition) never answers at a stage of a round; the set-up belongs to the first."""

    def before(node: int, message: Message) -> None:
        if (node - 100, stage_of(message), max(1, round_of(message))) in faults:
            raise Silent

    return before


def raising(*faults: tuple[int, str, int]) -> Any:
    """Return a fault: node (by partition) answers with an exception at a stage of a round."""

    def before(node: int, message: Message) -> None:
        if (node - 100, stage_of(message), max(1, round_of(message))) in faults:
            raise RuntimeError("the disk is full")

    return before


class TestExchanges:
    def test_the_first_round_takes_four_and_every_later_one_two(self) -> None:
        strategy, _ = run(LocalGrid(training_app(step), 5), rounds=5)
        assert [record.exchanges for record in strategy.history] == [4, 2, 2, 2, 2]

    def test_keys_of_later_rounds_ride_on_uploads_one_package_each(self) -> None:
        grid = LocalGrid(training_app(step), 4)
        run(grid, rounds=4)
        dealt = [
            (stage_of(reply), round_of(reply), len(content_of(reply)["secagg"].get("packages", [])))
            for node, reply in grid.replied
            if node == 102
        ]
        assert [(stage, packages) for stage, _, packages in dealt if packages] == [("SHARE_KEYS", 2)] + [
            ("UPLOAD", 1)
        ] * 4
        packages = [package for _, reply in grid.replied for package in content_of(reply)["secagg"].get("packages", [])]
        assert len(set(packages)) == len(packages) == 4 * 6

    def test_the_protocol_never_uses_a_number_twice_though_rounds_fail(self) -> None:
        faults = [(partition, "UPLOAD", 2) for partition in range(4)]
        grid = LocalGrid(training_app(step), 5, before=raising(*faults))
        strategy, _ = run(grid, rounds=4)
        assert [record.failure is None for record in strategy.history] == [True, False, True, True]
        assert [record.protocol_round for record in strategy.history] == [1, 2, 3, 4]

    def test_two_strategies_may_follow_each_other_in_one_run(self) -> None:
        """Each has a session of its own, and rows of its own in the nodes' ledgers."""
        grid = LocalGrid(training_app(step), 4)
        _, first = run(grid, rounds=2)
        _, second = run(grid, rounds=2)
        np.testing.assert_allclose(values(first.arrays)["w"], values(second.arrays)["w"], atol=1e-4)


class TestCohort:
    """Whoever is there when a run begins; nodes come and go."""

    def absent_in(self, grid: LocalGrid, node: int, rounds: set[int]) -> None:
        """Let a node be offline in some rounds."""

        def watch(other: int, message: Message) -> None:
            if stage_of(message) == "UNMASK" and other == 104:  # The last one of the round to be asked.
                (grid.online.discard if round_of(message) + 1 in rounds else grid.online.add)(node)

        grid.before = watch

    def test_a_node_that_misses_a_round_takes_part_in_the_next_without_any_more_exchanges(self) -> None:
        grid = LocalGrid(training_app(step), 5)
        self.absent_in(grid, 102, {2})
        strategy, _ = run(grid, rounds=4)
        assert [record.survivors for record in strategy.history] == [5, 4, 5, 5]
        assert [record.exchanges for record in strategy.history] == [4, 2, 2, 2]

    def test_one_that_misses_two_rounds_deals_in_the_third_and_is_back_in_the_fourth(self) -> None:
        grid = LocalGrid(training_app(step), 5)
        self.absent_in(grid, 102, {2, 3})
        strategy, _ = run(grid, rounds=6)
        assert [record.survivors for record in strategy.history] == [5, 4, 4, 4, 5, 5]
        assert [record.exchanges for record in strategy.history] == [4, 2, 2, 2, 2, 2]
        asked = [stage_of(message) for node, message in grid.sent if node == 102 and round_of(message) == 4]
        assert asked == ["SHARE_KEYS"]

    def test_a_reply_that_got_lost_is_made_up_for(self) -> None:
        """The node has dealt its package and nobody has it: it goes out again, as the same bytes."""
        grid = LocalGrid(training_app(step), 5)
        lost: list[bytes] = []

        def lose(node: int, reply: Message) -> list[Message]:
            if node == 102 and stage_of(reply) == "UPLOAD" and round_of(reply) == 2:
                lost.extend(content_of(reply)["secagg"]["packages"])
                return [Message(Error(3, "expired"), reply_to=next(m for n, m in grid.sent[::-1] if n == 102))]
            return [reply]

        grid.after = lose
        strategy, _ = run(grid, rounds=5)
        assert [record.survivors for record in strategy.history] == [5, 4, 5, 5, 5]
        later = [content_of(reply)["secagg"] for node, reply in grid.replied if node == 102 and round_of(reply) == 3]
        assert lost[0] in later[0]["packages"]

    def test_a_newcomer_that_is_chosen_is_in_the_sum_at_the_cost_of_new_keys(self) -> None:
        grid = LocalGrid(training_app(step), 5)
        grid.online.discard(104)

        def arrive(node: int, message: Message) -> None:
            if round_of(message) == 1 and stage_of(message) == "UNMASK":
                grid.online.add(104)

        grid.before = arrive
        strategy, _ = run(grid, rounds=3)
        assert [record.survivors for record in strategy.history] == [4, 5, 5]
        assert [record.exchanges for record in strategy.history] == [4, 4, 2]

    def test_when_most_of_those_that_are_chosen_are_new_a_new_run_begins(self) -> None:
        grid = LocalGrid(training_app(step), 12)
        grid.online = set(range(100, 104))

        def change(node: int, message: Message) -> None:
            if round_of(message) == 1 and stage_of(message) == "UNMASK":
                grid.online = set(range(102, 112))

        grid.before = change
        strategy, _ = run(grid, rounds=3, threshold=None)
        assert [record.cohort for record in strategy.history] == [4, 10, 10]
        assert [record.exchanges for record in strategy.history] == [4, 4, 2]
        assert [record.protocol_round for record in strategy.history] == [1, 2, 3]

    def test_when_everybody_has_missed_too_much_packages_are_asked_for_first(self) -> None:
        """Two rounds fail because the power is off; nobody needs a new run."""
        faults = [(partition, "UPLOAD", number) for partition in range(5) for number in (2, 3)]
        strategy, _ = run(LocalGrid(training_app(step), 5, before=raising(*faults)), rounds=5)
        assert [record.failure is None for record in strategy.history] == [True, False, False, True, True]
        assert [record.exchanges for record in strategy.history] == [4, 1, 1, 3, 2]

    def test_a_run_outlives_a_new_one_that_could_not_begin(self) -> None:
        faults = [(partition, "UPLOAD", number) for partition in range(5) for number in (2, 3)]
        asked: list[str] = []

        def before(node: int, message: Message) -> None:
            raising(*faults)(node, message)
            if round_of(message) == 3:
                asked.append(stage_of(message))
                if len(asked) <= 2 * 5:  # For packages, then for the keys of a new run.
                    raise RuntimeError("no power")

        strategy, _ = run(LocalGrid(training_app(step), 5, before=before), rounds=5)
        assert asked[:10] == ["SHARE_KEYS"] * 5 + ["ADVERTISE_KEYS"] * 5
        assert [record.failed_at for record in strategy.history] == [None, "UPLOAD", "UPLOAD", "ADVERTISE_KEYS", None]
        assert strategy.history[-1].exchanges == 3

    def test_whoever_a_strategy_samples_is_in_the_sum(self) -> None:
        class Some(FedAvg):
            def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
                messages = list(super().configure_train(server_round, arrays, config, grid))
                return [m for m in messages if m.metadata.dst_node_id != 100 + server_round]

        grid = LocalGrid(training_app(step), 7)
        strategy, _ = run(grid, rounds=3, inner=Some(fraction_evaluate=0.0))
        assert [record.cohort for record in strategy.history] == [6, 6, 6]
        assert [record.survivors for record in strategy.history] == [6, 6, 6]
        assert [record.dropped["UPLOAD"] for record in strategy.history] == [0, 0, 0]

    def test_another_model_begins_another_run(self) -> None:
        grid = LocalGrid(training_app(step), 4)
        strategy, _ = run(grid, rounds=1)
        strategy.start(grid=grid, initial_arrays=model(w=np.zeros(7, np.float32)), num_rounds=1, timeout=0.3)
        assert [record.exchanges for record in strategy.history] == [4, 4]


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
        grid = LocalGrid(training_app(step), 5, before=raising((3, "UPLOAD", 1), (2, "UNMASK", 2)))
        strategy, _ = run(grid, rounds=3)
        assert [record.survivors for record in strategy.history] == [4, 5, 5]
        assert [record.dropped["UNMASK"] for record in strategy.history] == [0, 1, 0]

    def test_a_node_that_still_owes_an_answer_is_not_asked(self) -> None:
        grid = LocalGrid(training_app(step), 5, before=silent((2, "UPLOAD", 1)))
        strategy, _ = run(grid, rounds=2)
        assert not [message for node, message in grid.sent if node == 102 and round_of(message) == 2]
        assert strategy.history[1].dropped["UPLOAD"] == 1
        assert strategy.history[1].failure is None

    def test_a_late_answer_makes_the_node_free_again(self) -> None:
        grid = LocalGrid(training_app(step), 5)
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
        strategy, _ = run(grid, rounds=4)
        # It deals in round 3, since its packages have run out.
        assert [record.survivors for record in strategy.history] == [4, 4, 4, 5]


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
    def test_a_round_in_which_nobody_answers_ends_in_time(self, stage: str) -> None:
        faults = [(partition, stage, 1) for partition in range(4)]
        strategy, result = run(LocalGrid(training_app(step), 4, before=silent(*faults)))
        assert strategy.history[0].failed_at == ("UPLOAD" if stage == "SHARE_KEYS" else stage)
        np.testing.assert_array_equal(values(result.arrays)["w"], START)

    def test_if_every_round_fails_the_result_is_the_initial_model(self) -> None:
        grid = LocalGrid(training_app(step), 4, before=raising(*[(p, "UPLOAD", r) for p in range(4) for r in (1, 2)]))
        strategy, result = run(grid, rounds=2)
        assert all(record.failure for record in strategy.history)
        np.testing.assert_array_equal(values(result.arrays)["w"], START)

    def test_a_thin_group_loses_its_slice_for_the_round_and_nothing_else_is_lost(self) -> None:
        """Groups of three that need all three: the slice of the one with a dropout stays as it was."""
        grid = LocalGrid(training_app(step), 6, before=raising((0, "UPLOAD", 1)))
        strategy, result = run(grid, group_size=3, threshold=3, alpha=0.5, rounds=1)
        after = values(result.arrays)["w"]
        assert strategy.history[0].failure is None
        assert (strategy.history[0].groups, strategy.history[0].groups_opened) == (2, 1)
        assert strategy.history[0].coordinates_updated == 0.5
        moved = after != 0
        assert moved.sum() == 30
        assert len(set(np.round(after[moved], 6).tolist())) == 1

    def test_what_a_train_function_raises_stays_in_the_log_of_its_node(self, caplog: Any) -> None:
        def fail(partition: int, arrays: Any, server_round: int) -> Any:
            if partition == 1:
                raise ValueError("no data on this node")
            return step(partition, arrays, server_round)

        grid = LocalGrid(training_app(fail), 5)
        strategy, result = run(grid)
        assert "no data on this node" in caplog.text
        assert "no data" not in repr([dict(content_of(reply)["secagg"]) for _, reply in grid.replied])
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of([0, 2, 3, 4]), atol=1e-5)
        assert strategy.history[0].dropped["UPLOAD"] == 1

    def test_a_fault_of_the_mod_itself_is_one_fixed_text(self, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: Any) -> Any:
            raise TypeError("something secret")

        monkeypatch.setattr("sparsesecagg.flower.packing.ModelUpdate", broken)
        with pytest.raises(RefusedByAll, match="AppFailed: the ClientApp failed in this round") as raised:
            run(LocalGrid(training_app(step), 4))
        assert "something secret" not in str(raised.value)
        assert "something secret" in caplog.text


def test_a_node_that_leaves_may_change_what_is_sent_whole() -> None:
    """With 19 nodes the second array is sent whole, and the gain has seen it in slices."""
    first = {"w": np.zeros((64, 64), np.float32), "b": np.zeros(1024, np.float32)}

    def train(user: int, arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        return {name: array + np.float32(0.01) for name, array in arrays.items()}

    def leave(node: int, message: Message) -> None:
        if strategy.history[-1].number == 2 and stage_of(message) == "UNMASK":
            grid.online.discard(119)

    grid = LocalGrid(training_app(train), 20)
    grid.before = leave
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), timeout=0.3)
    strategy.start(grid=grid, initial_arrays=model(**first), num_rounds=4, timeout=0.5)
    assert [record.failure for record in strategy.history] == [None] * 4
    assert [record.survivors for record in strategy.history][2:] == [19, 19]


def test_two_nodes_that_refuse_again_and_again_are_not_all_of_five() -> None:
    """Else they could end the run for good, in its first round."""
    grid = LocalGrid(training_app(lambda user, arrays, number: arrays), 5)

    def refuse(node: int, reply: Message) -> list[Message]:
        if node < 102 and strategy.history[-1].number == 1 and stage_of(reply) in ("SHARE_KEYS", "UPLOAD"):
            content_of(reply)["secagg"] = ConfigRecord({**content_of(reply)["secagg"], "refused": "no"})
        return [reply]

    grid.after = refuse
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), timeout=0.3)
    strategy.start(grid=grid, initial_arrays=model(w=np.zeros((64, 64), np.float32)), num_rounds=2, timeout=0.5)
    assert strategy.history[0].refusals == {100: "no", 101: "no"}
    assert strategy.history[1].failure is None
