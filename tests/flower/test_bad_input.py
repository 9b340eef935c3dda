"""What must not happen and does: typed errors or counted dropouts, never a hang, never a wrong mean."""

from __future__ import annotations

import base64
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from flower.local_grid import LocalGrid, content_of, model, round_of, secagg, stage_of, training_app, travel, values
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import SecAgg
from sparsesecagg.flower.messages import Packet, read_packet
from sparsesecagg.protocol import SqliteLedger, Stage
from sparsesecagg.protocol.ledger import ClientState, StateStep, restore_state

START = np.zeros(60, np.float32)


def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
    return {"w": arrays["w"] + np.float32(0.01 * (partition + 1))}


def run(grid: Grid, rounds: int = 1, inner: FedAvg | None = None, **settings: Any) -> tuple[SecAgg, Result]:
    strategy = secagg(inner, **{"threshold": len(list(grid.get_node_ids())) // 2 + 1, **settings})
    return strategy, strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=rounds, timeout=0.3)


def require_mean(result: Result, partitions: Any) -> None:
    expected = np.mean([0.01 * (partition + 1) for partition in partitions])
    np.testing.assert_allclose(values(result.arrays)["w"], expected, atol=1e-5)


def rewritten(reply: Message, **fields: Any) -> Message:
    """Return a reply with other entries in its control record."""
    changed = travel(reply)
    content_of(changed)["secagg"] = ConfigRecord({**content_of(changed)["secagg"], **fields})
    changed.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return changed


def refusal_in(reply: Message) -> str:
    """Return why a node refused, with packages or without."""
    return str(reply.error.reason) if reply.has_error() else str(content_of(reply)["secagg"]["refused"])


class TestReplies:
    @pytest.mark.parametrize("stage", ["ADVERTISE_KEYS", "UPLOAD"])
    @pytest.mark.parametrize(
        "lie",
        [
            {"round": 7},
            {"round": "one"},
            {"stage": "UNMASK"},
            {"stage": "LUNCH"},
            {"version": 1},
            {"payload": b"nonsense"},
            {"payload": 5},
        ],
        ids=str,
    )
    def test_a_reply_that_does_not_fit_makes_its_node_a_dropout(self, stage: str, lie: dict[str, Any]) -> None:
        def after(node: int, reply: Message) -> list[Message]:
            return [rewritten(reply, **lie)] if node == 101 and stage_of(reply) == stage else [reply]

        strategy, result = run(LocalGrid(training_app(step), 5, after=after))
        assert strategy.history[0].rejected == 1
        assert strategy.history[0].dropped[stage] == 1
        require_mean(result, [0, 2, 3, 4])

    @pytest.mark.parametrize(
        "lie",
        [{"round": 7}, {"stage": "UPLOAD"}, {"packages": [b"nonsense"]}, {"packages": 5}, {"packages": ["a"]}],
        ids=str,
    )
    def test_so_do_keys_that_do_not_fit(self, lie: dict[str, Any]) -> None:
        def after(node: int, reply: Message) -> list[Message]:
            lying = node == 101 and stage_of(reply) == "SHARE_KEYS" and round_of(reply) == 0
            return [rewritten(reply, **lie)] if lying else [reply]

        strategy, result = run(LocalGrid(training_app(step), 5, after=after))
        assert strategy.history[0].rejected == 1
        assert strategy.history[0].dropped["SHARE_KEYS"] == 1
        require_mean(result, [0, 2, 3, 4])

    def test_a_package_of_another_node_is_rejected(self) -> None:
        stolen: list[list[bytes]] = []

        def after(node: int, reply: Message) -> list[Message]:
            if stage_of(reply) != "SHARE_KEYS" or round_of(reply) > 0:
                return [reply]
            stolen.append(content_of(reply)["secagg"]["packages"])
            return [rewritten(reply, packages=stolen[0])] if node == 101 else [reply]

        strategy, _ = run(LocalGrid(training_app(step), 5, after=after))
        assert strategy.history[0].rejected == 1
        assert strategy.history[0].survivors == 4

    def test_a_second_reply_of_one_node_is_counted_and_ignored(self) -> None:
        def after(node: int, reply: Message) -> list[Message]:
            return [reply, reply] if node == 101 else [reply]

        _, result = run(LocalGrid(training_app(step), 5, after=after))
        require_mean(result, range(5))

    def test_two_uploads_of_one_node_that_another_loop_collected_are_counted_and_ignored(self) -> None:
        """Not every caller uses `start`; then the replies are whatever the caller hands over."""
        grid = LocalGrid(training_app(step), 5)
        strategy = secagg()
        uploads = list(strategy.configure_train(1, model(w=START), ConfigRecord(), grid))
        replies = list(grid.send_and_receive(uploads))
        stranger = travel(replies[0])
        stranger.metadata.__dict__["_reply_to_message_id"] = "never sent"
        arrays, metrics = strategy.aggregate_train(1, [*replies, replies[2], stranger])
        assert arrays is not None
        assert metrics is not None
        assert strategy.history[-1].rejected == 2
        np.testing.assert_allclose(values(arrays)["w"], 0.03, atol=1e-5)

    def test_a_reply_for_a_message_that_was_never_sent_is_ignored(self) -> None:
        class Chatty(LocalGrid):
            def pull_messages(self, message_ids: Any) -> Any:
                replies = list(super().pull_messages(message_ids))
                for reply in replies[:1]:
                    stranger = travel(reply)
                    stranger.metadata.__dict__["_reply_to_message_id"] = "never sent"
                    replies.append(stranger)
                return replies

        _, result = run(Chatty(training_app(step), 5))
        require_mean(result, range(5))

    def test_a_node_that_answers_with_the_message_of_another_is_rejected(self) -> None:
        uploads: list[Message] = []

        def after(node: int, reply: Message) -> list[Message]:
            if stage_of(reply) != "UPLOAD":
                return [reply]
            uploads.append(reply)
            if node != 101:
                return [reply]
            return [rewritten(reply, payload=content_of(uploads[0])["secagg"]["payload"])]

        strategy, result = run(LocalGrid(training_app(step), 5, after=after))
        assert strategy.history[0].rejected == 1
        require_mean(result, [0, 2, 3, 4])

    def test_an_upload_of_another_round_is_rejected(self) -> None:
        """Replayed as it is, with the round's number of today on the outside."""
        old: list[bytes] = []

        def after(node: int, reply: Message) -> list[Message]:
            if stage_of(reply) == "UPLOAD" and node == 101:
                if round_of(reply) == 1:
                    old.append(content_of(reply)["secagg"]["payload"])
                else:
                    return [rewritten(reply, payload=old[0])]
            return [reply]

        strategy, _ = run(LocalGrid(training_app(step), 5, after=after), rounds=2)
        assert [record.dropped["UPLOAD"] for record in strategy.history] == [0, 1]
        assert strategy.history[1].failure is None


class TestClients:
    """The client's side of the same: a message that does not fit is refused and changes nothing."""

    def grid(self) -> tuple[LocalGrid, list[Message]]:
        """Return a grid after one round, and that round's messages to node 100."""
        grid = LocalGrid(training_app(step), 4)
        run(grid)
        return grid, [message for node, message in grid.sent if node == 100]

    def send(self, grid: LocalGrid, message: Message) -> Message:
        return grid.app(message, grid.contexts[100])

    def test_a_message_that_was_answered_last_gets_the_same_answer_and_earlier_ones_none(self) -> None:
        grid, messages = self.grid()
        last = [reply for node, reply in grid.replied if node == 100][-1]
        for message in messages:
            reply = self.send(grid, message)
            if stage_of(message) == "UNMASK":
                assert content_of(reply)["secagg"]["payload"] == content_of(last)["secagg"]["payload"]
            elif stage_of(message) != "SHARE_KEYS":
                assert "AlreadyAnswered" in refusal_in(reply)

    def test_replayed_epoch_keys_bring_nothing_new(self) -> None:
        grid, messages = self.grid()
        share_keys = next(message for message in messages if stage_of(message) == "SHARE_KEYS")
        first = next(reply for node, reply in grid.replied if node == 100 and stage_of(reply) == "SHARE_KEYS")
        again = content_of(self.send(grid, share_keys))["secagg"].get("packages", [])
        assert set(again) <= set(content_of(first)["secagg"]["packages"])

    def test_a_header_of_another_round_than_its_message_says_is_refused(self) -> None:
        grid = LocalGrid(training_app(step), 4)
        caught: list[Message] = []

        def before(node: int, message: Message) -> None:
            if node == 100 and stage_of(message) == "UPLOAD":
                changed = travel(message)
                content_of(changed)["secagg"] = ConfigRecord({**content_of(changed)["secagg"], "round": 9})
                caught.append(self.send(grid, changed))

        grid.before = before
        strategy, result = run(grid)
        assert "AlreadyAnswered" in refusal_in(caught[0])
        require_mean(result, [1, 2, 3])  # It has moved on to round 9, and is out of this one.
        assert strategy.history[0].dropped["UPLOAD"] == 1

    def test_a_node_that_lost_its_ledger_is_a_dropout_until_the_next_run(self, ledger: Path) -> None:
        grid = LocalGrid(training_app(step), 5, node_config=lambda index: {"secagg-ledger": str(ledger / str(index))})

        def before(node: int, message: Message) -> None:
            if node == 102 and round_of(message) == 2 and stage_of(message) == "UPLOAD":
                shutil.rmtree(ledger / "2")

        grid.before = before
        strategy, _ = run(grid, rounds=3)
        assert [record.survivors for record in strategy.history] == [5, 4, 4]
        assert run(grid)[0].history[0].survivors == 5

    @pytest.mark.parametrize("damage", ["damaged", "open to others", "not writable"])
    def test_a_ledger_that_can_not_be_used_makes_the_node_a_dropout_by_name(
        self, ledger: Path, damage: str, caplog: Any
    ) -> None:
        def folder(index: int) -> dict[str, Any]:
            return {"secagg-ledger": str(ledger / str(index))}

        own = ledger / "1"
        own.mkdir(mode=0o700)
        if damage == "damaged":
            (own / "ledger.sqlite3").write_bytes(b"rubbish" * 1000)
            (own / "ledger.sqlite3").chmod(0o600)
        elif damage == "open to others":
            own.chmod(0o755)
        else:
            own.rmdir()
            own.write_text("a file in its place")
        strategy, result = run(LocalGrid(training_app(step), 5, node_config=folder))
        require_mean(result, [0, 2, 3, 4])
        assert strategy.history[0].dropped["ADVERTISE_KEYS"] == 1
        assert "LedgerUnusable: ledger " in caplog.text

    def test_flowers_context_holds_nothing_of_ours(self) -> None:
        """So that nobody can put it back, or hand it to two tasks, and gain anything."""
        grid, _ = self.grid()
        assert not any(context.state for context in grid.contexts.values())

    def test_a_model_other_than_the_round_was_agreed_on_is_not_trained(self) -> None:
        trained: list[int] = []

        def watch(partition: int, arrays: Any, server_round: int) -> Any:
            trained.append(partition)
            return step(partition, arrays, server_round)

        def swap(node: int, message: Message) -> None:
            if node == 101 and stage_of(message) == "UPLOAD":
                content_of(message)["arrays"] = model(w=START + 1)

        strategy, result = run(LocalGrid(training_app(watch), 5, before=swap))
        assert 1 not in trained
        assert strategy.history[0].dropped["UPLOAD"] == 1
        require_mean(result, [0, 2, 3, 4])

    @pytest.mark.parametrize(
        "reply",
        [
            {"other": START},
            {"w": START[:7]},
            {"w": START.astype(np.int64)},
        ],
        ids=["other names", "another shape", "integers"],
    )
    def test_a_trained_model_that_does_not_fit_makes_the_node_a_dropout(self, reply: dict[str, Any]) -> None:
        def train(partition: int, arrays: Any, server_round: int) -> Any:
            return reply if partition == 1 else step(partition, arrays, server_round)

        strategy, result = run(LocalGrid(training_app(train), 5))
        assert strategy.history[0].dropped["UPLOAD"] == 1
        require_mean(result, [0, 2, 3, 4])

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_what_is_not_finite_counts_as_nothing_and_nobody_is_told(self, value: float) -> None:
        def train(partition: int, arrays: Any, server_round: int) -> Any:
            moved = step(partition, arrays, server_round)
            return {"w": np.full(60, value, np.float32)} if partition == 1 else moved

        strategy, result = run(LocalGrid(training_app(train), 5))
        assert strategy.history[0].survivors == 5
        np.testing.assert_allclose(values(result.arrays)["w"], 0.01 * (1 + 3 + 4 + 5) / 5, atol=1e-5)

    @pytest.mark.parametrize("examples", [-1, 0.4, float("inf"), float("nan")])
    def test_a_weight_that_is_none_counts_as_one_and_nobody_is_told(self, examples: float) -> None:
        weight: Any = lambda partition: examples if partition == 1 else 16  # noqa: E731
        strategy, result = run(LocalGrid(training_app(step, weight=weight), 5), max_weight=100)
        assert strategy.history[0].survivors == 5
        expected = 0.01 * (16 * (1 + 3 + 4 + 5) + 2) / (4 * 16 + 1)
        np.testing.assert_allclose(values(result.arrays)["w"], expected, atol=1e-5)

    def test_a_round_trains_once(self) -> None:
        """An app that fails has used its round up: the same message again is refused, and nothing is trained."""
        trained: list[int] = []

        def fail(partition: int, arrays: Any, server_round: int) -> Any:
            if partition != 1:
                return step(partition, arrays, server_round)
            trained.append(server_round)
            raise ValueError("no data")

        grid = LocalGrid(training_app(fail), 5)
        run(grid)
        (upload,) = [message for node, message in grid.sent if node == 101 and stage_of(message) == "UPLOAD"]
        assert "has trained once on this node" in refusal_in(grid.app(upload, grid.contexts[101]))
        assert trained == [1]

    def test_one_node_is_one_user_of_a_run(self) -> None:
        """A server that makes one node all users of a run would read its update."""
        grid, messages = self.grid()
        advertise = next(message for message in messages if stage_of(message) == "ADVERTISE_KEYS")
        content_of(advertise)["secagg"] = ConfigRecord({**content_of(advertise)["secagg"], "user": 1})
        assert "this node is user 0 of the run, and can't be user 1 as well" in refusal_in(self.send(grid, advertise))

    @pytest.mark.parametrize(
        ("stage", "field", "problem"),
        [("ADVERTISE_KEYS", "epoch", "too far ahead"), ("SHARE_KEYS", "round", "skips more than 4096 rounds")],
    )
    def test_no_message_uses_up_all_numbers(self, stage: str, field: str, problem: str) -> None:
        grid, messages = self.grid()
        far = next(message for message in messages if stage_of(message) == stage)
        content_of(far)["secagg"] = ConfigRecord({**content_of(far)["secagg"], field: (1 << 63) - 1})
        assert problem in refusal_in(self.send(grid, far))

    def test_a_weight_above_the_limit_counts_as_the_limit_and_nobody_is_told(self, caplog: Any) -> None:
        """A refusal would tell the server about private data, round by round until it is known."""
        app = training_app(step, weight=lambda partition: 123_457 if partition == 1 else 100)
        strategy, result = run(LocalGrid(app, 5), max_weight=100)
        require_mean(result, range(5))
        assert strategy.history[0].dropped["UPLOAD"] == 0
        assert "123457" not in caplog.text

    def test_no_secret_of_a_node_is_in_anything_that_it_sends_or_logs(self, caplog: Any, ledger: Path) -> None:
        """Nor in the texts of its refusals: every reply of a run is searched for the secrets of the states."""
        grid = LocalGrid(training_app(step), 4)
        secrets: set[bytes] = set()

        def before(node: int, message: Message) -> None:
            for path in ledger.glob("*/ledger.sqlite3"):
                with sqlite3.connect(path) as database:
                    owners = database.execute("SELECT run, user FROM clients").fetchall()
                for owner in owners:
                    with SqliteLedger(path.parent, *owner) as kept:
                        state = restore_state(kept.state() or b"")
                    held = StateStep(state, ClientState(user=state.user, params=b"")).dropped()
                    secrets.update(secret.reveal() for secret in held)
            if round_of(message) == 2 and node == 101:
                raise RuntimeError("spoilt")

        grid.before = before
        run(grid, rounds=3)
        secrets.discard(b"")
        assert len(secrets) >= 4 * 3 * 5
        sent = b"".join(
            bytes(str(dict(content_of(reply)["secagg"])), "utf-8") for _, reply in grid.replied if reply.has_content()
        )
        for secret in secrets:
            for spelling in (repr(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode()):
                assert spelling not in caplog.text
                assert spelling.encode() not in sent


class TestCohorts:
    def test_an_empty_cohort_is_a_failed_round_and_no_crash(self) -> None:
        inner = FedAvg(fraction_train=0.0, fraction_evaluate=0.0)
        strategy, result = run(LocalGrid(training_app(step), 4), inner=inner)
        assert strategy.history[0].failure == "the wrapped strategy chose no node for this round"
        np.testing.assert_array_equal(values(result.arrays)["w"], START)

    @pytest.mark.parametrize("nodes", [1, 2])
    def test_a_cohort_below_three_stops_the_first_round_with_a_typed_error(self, nodes: int) -> None:
        inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
        with pytest.raises(
            InvalidInput, match=f"strategy must choose 3 nodes or more, and chose {nodes} .* num-supernodes"
        ):
            run(LocalGrid(training_app(step), nodes), inner=inner, threshold=None)

    def test_a_cohort_that_shrinks_below_three_later_fails_that_round_and_keeps_the_model(self) -> None:
        grid = LocalGrid(training_app(step), 4)

        def shrink(node: int, message: Message) -> None:
            if stage_of(message) == "UNMASK" and round_of(message) == 1 and node == 103:
                grid.online = {100, 101}

        grid.before = shrink
        strategy, result = run(grid, rounds=2)
        assert "users left at UPLOAD" in str(strategy.history[1].failure) or "must choose 3 nodes or more" in str(
            strategy.history[1].failure
        )
        assert strategy.history[0].survivors >= 2
        assert not np.array_equal(values(result.arrays)["w"], START)

    def test_a_model_that_is_too_small_for_an_alpha_stops_the_first_round_with_the_remedy(self) -> None:
        with pytest.raises(
            InvalidInput, match=r"alpha of 0\.01 sends 1 of every 100 coordinates, and the model has 60"
        ):
            run(LocalGrid(training_app(step), 5), alpha=0.01)

    def test_a_strategy_that_sends_different_models_is_refused(self) -> None:
        class Uneven(FedAvg):
            def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
                messages = list(super().configure_train(server_round, arrays, config, grid))
                messages[1].content = RecordDict({"arrays": model(w=START + 1), "config": config})
                return messages

        with pytest.raises(InvalidInput, match="all nodes the same model and configuration"):
            run(LocalGrid(training_app(step), 4), inner=Uneven(fraction_evaluate=0.0))

    def test_a_strategy_that_asks_one_node_twice_is_refused(self) -> None:
        class Twice(FedAvg):
            def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
                messages = list(super().configure_train(server_round, arrays, config, grid))
                return [*messages, messages[0]]

        with pytest.raises(InvalidInput, match="one message"):
            run(LocalGrid(training_app(step), 4), inner=Twice(fraction_evaluate=0.0))

    @pytest.mark.parametrize("arrays", [{}, {"n": np.arange(3)}, {"z": np.zeros(3, np.complex64)}], ids=str)
    def test_a_model_with_nothing_to_average_is_refused(self, arrays: dict[str, Any]) -> None:
        strategy = secagg()
        grid = LocalGrid(training_app(step), 4)
        with pytest.raises(InvalidInput, match="arrays must hold"):
            strategy.start(grid=grid, initial_arrays=model(**arrays), num_rounds=1)


def test_aggregating_a_round_that_was_never_configured_changes_nothing() -> None:
    arrays, metrics = SecAgg(FedAvg()).aggregate_train(3, [])
    assert arrays is None
    assert metrics is not None


def test_a_packet_survives_the_trip_whatever_its_size() -> None:
    for size in (0, 1, 1 << 16, (1 << 16) + 1):
        packet = Packet(Stage.UPLOAD, 3, bytes(size), [b"one", b"two"], user=4)
        message = travel(Message(RecordDict(packet.records()), 100, "train"))
        assert read_packet(message.content) == packet
        assert isinstance(message.content.get("secagg-bulk"), ArrayRecord) == (size > 1 << 16)
