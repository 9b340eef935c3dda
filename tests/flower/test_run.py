"""A server that is ended in the middle of a run goes on with it, from its run folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedYogi, Result, Strategy

from flower.enrolment import enrol_users
from flower.local_grid import LocalGrid, PassThrough, model, secagg, stage_of, training_app, values
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import RefusedByAll, SecAgg

USERS = 6
START = np.zeros(600, np.float32)


class Killed(BaseException):
    """The end of a process: nothing of ours may catch it."""


def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
    return {"w": arrays["w"] + np.float32(0.01 * (partition + 1))}


MEAN = 0.01 * (USERS + 1) / 2


class Play:
    """Nodes that stay, and server processes that come and go."""

    def __init__(self, folder: Path, roster: bool = False) -> None:
        self.folder = folder / "run"
        users = enrol_users(folder / "users", USERS) if roster else None
        self.grid = LocalGrid(training_app(step), USERS, node_config=users.node_config if users else None)
        self.roster = users.roster if users else None
        self.seen: list[int] = []
        self.strategy: Any = None

    def start(
        self, rounds: int, kill: tuple[int, str] | None = None, around: Strategy | None = None, **settings: Any
    ) -> Result | None:
        """Start a server; with `kill` it ends as nodes answer a stage of a round. Return its result, or None."""
        self.strategy = secagg(around, max_weight=0, roster=self.roster, run_dir=self.folder, **settings)
        answered = 0

        def end(node: int, reply: Message) -> list[Message]:
            nonlocal answered
            if kill and self.strategy.history[-1].number == kill[0] and stage_of(reply) == kill[1]:
                answered += 1
                if answered == USERS:  # All have answered, and nobody hears of it.
                    raise Killed
            return [reply]

        self.grid.after = end
        try:
            result: Result = self.strategy.start(
                grid=self.grid, initial_arrays=model(w=START), num_rounds=rounds, timeout=0.3, evaluate_fn=self.keep
            )
        except Killed:
            return None
        return result

    def keep(self, server_round: int, arrays: ArrayRecord) -> None:
        self.seen.append(server_round)

    def stages(self) -> list[str]:
        return [stage_of(message) for node, message in self.grid.sent if node == 100]


@pytest.mark.parametrize("roster", [False, True], ids=["plain", "roster"])
@pytest.mark.parametrize("stage", ["UPLOAD", "UNMASK"])
def test_a_server_that_died_in_a_round_goes_on_with_the_next_in_the_same_epoch(
    tmp_path: Path, ledger: Path, stage: str, roster: bool
) -> None:
    """Also when all nodes have opened the round and the server has not seen it: nothing is asked for twice."""
    play = Play(tmp_path, roster)
    assert play.start(4, kill=(2, stage)) is None
    before = len(play.stages())
    result = play.start(4)
    assert result is not None
    assert [record.number for record in play.strategy.history] == [2, 3, 4]
    assert [record.failure for record in play.strategy.history] == [None] * 3
    assert [record.survivors for record in play.strategy.history] == [USERS] * 3
    assert "ADVERTISE_KEYS" not in play.stages()[before:]
    np.testing.assert_allclose(values(result.arrays)["w"], 4 * MEAN, rtol=1e-4)
    assert sorted(result.train_metrics_clientapp) == [2, 3, 4]
    assert play.seen == [0, 1, 1, 2, 3, 4]
    # The protocol's number of the round that was lost is not used again.
    assert [record.protocol_round for record in play.strategy.history] == [3, 4, 5]
    lines = [json.loads(line) for line in (play.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert not list(play.folder.glob("*.state"))


@pytest.mark.parametrize(
    "around",
    [
        lambda: FedAdam(fraction_evaluate=0.0),
        lambda: FedYogi(fraction_evaluate=0.0),
        lambda: FedAvgM(fraction_evaluate=0.0, server_momentum=0.9),
    ],
    ids=["FedAdam", "FedYogi", "FedAvgM"],
)
def test_what_a_strategy_remembers_survives_its_process(
    tmp_path: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch, around: Callable[[], Strategy]
) -> None:
    def cut(name: str) -> np.ndarray:
        play = Play(tmp_path / name)
        assert play.start(4, kill=(3, "UPLOAD"), around=around()) is None
        return final(play.start(4, around=around()))

    expected = final(Play(tmp_path / "whole").start(4, around=around()))
    np.testing.assert_allclose(cut("cut"), expected, rtol=1e-3)
    monkeypatch.setattr("sparsesecagg.flower.state._memory", lambda strategy: {})
    assert not np.allclose(cut("forgetful"), expected, rtol=1e-2), "the test could not fail"


class Remembers(FedAvg):
    """Keeps arrays in other ways than Flower's own strategies do."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.one: Any = None
        self.pair: Any = None
        self.by_round: Any = {}

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Note the number of the round in each of them."""
        number = np.array([server_round])
        self.one, self.pair = number, (number, -number)
        self.by_round[server_round] = number
        return super().aggregate_train(server_round, replies)


def test_arrays_are_remembered_in_what_the_strategy_keeps_them_in(tmp_path: Path, ledger: Path) -> None:
    play, resumed = Play(tmp_path), Remembers()
    play.start(3, kill=(3, "UPLOAD"), around=Remembers())
    play.start(3, kill=(3, "UPLOAD"), around=resumed)
    assert (resumed.one, resumed.pair, resumed.by_round) == (2, (2, -2), {1: 1, 2: 2})


def final(result: Result | None) -> np.ndarray:
    assert result is not None
    return values(result.arrays)["w"]


def test_with_steps_nodes_go_on_from_the_models_that_they_hold(tmp_path: Path, ledger: Path) -> None:
    play = Play(tmp_path)
    play.start(4, kill=(3, "UPLOAD"), downlink_bits=4)
    result = play.start(4, downlink_bits=4)
    assert result is not None
    assert all(record.line()["downlink_bytes"] < START.nbytes / 3 for record in play.strategy.history)
    np.testing.assert_allclose(values(result.arrays)["w"], 4 * MEAN, rtol=0.1)


def test_steps_of_other_bits_begin_with_a_whole_model(tmp_path: Path, ledger: Path) -> None:
    play = Play(tmp_path)
    play.start(4, kill=(3, "UPLOAD"), downlink_bits=4)
    result = play.start(4, downlink_bits=8)
    assert [record.failure for record in play.strategy.history] == [None, None]
    assert play.strategy.history[0].line()["downlink_bytes"] == START.nbytes
    np.testing.assert_allclose(final(result), 4 * MEAN, rtol=0.1)


@pytest.mark.parametrize("roster", [False, True], ids=["plain", "roster"])
def test_other_options_than_those_of_the_run_hold_from_the_restart_on(
    tmp_path: Path, ledger: Path, caplog: pytest.LogCaptureFixture, roster: bool
) -> None:
    play = Play(tmp_path, roster)
    play.start(3, kill=(2, "UPLOAD"), modulus_bits=32)
    before = len(play.stages())
    result = play.start(3, modulus_bits=24)
    assert "other options than those of the run in the folder" in caplog.text
    assert "ADVERTISE_KEYS" in play.stages()[before:]
    assert play.strategy._run.params.word.bits == 24
    assert [record.failure for record in play.strategy.history] == [None, None]
    np.testing.assert_allclose(final(result), 3 * MEAN, rtol=1e-3)


def test_after_a_run_that_all_nodes_refused_all_rounds_are_played(tmp_path: Path, ledger: Path) -> None:
    def broken(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        raise RuntimeError

    play = Play(tmp_path)
    mended, play.grid = play.grid, LocalGrid(training_app(broken), USERS)
    with pytest.raises(RefusedByAll):
        play.start(3)
    play.grid = mended
    np.testing.assert_allclose(final(play.start(3)), 3 * MEAN, rtol=1e-4)


def test_if_the_nodes_are_others_a_new_epoch_begins_with_the_same_model(
    tmp_path: Path, ledger: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play = Play(tmp_path)
    play.start(3, kill=(2, "UPLOAD"))
    others = LocalGrid(training_app(step), 2 * USERS)
    others.online = {100 + USERS + index for index in range(USERS)}
    play.grid, mean = others, 0.01 * (USERS + 1 + 2 * USERS) / 2
    with caplog.at_level(logging.INFO, "flwr"):
        result = play.start(3)
    assert result is not None
    assert "keys are exchanged anew" in caplog.text
    np.testing.assert_allclose(values(result.arrays)["w"], MEAN + 2 * mean, rtol=1e-4)


def test_a_run_that_is_over_is_not_gone_on_with(tmp_path: Path, ledger: Path) -> None:
    play = Play(tmp_path)
    play.start(2)
    result = play.start(1)
    assert result is not None
    np.testing.assert_allclose(values(result.arrays)["w"], MEAN, rtol=1e-4)


def test_keys_that_can_not_be_read_cost_an_epoch_and_a_model_that_can_not_is_an_error(
    tmp_path: Path, ledger: Path
) -> None:
    play = Play(tmp_path)
    play.start(3, kill=(2, "UPLOAD"))
    (play.folder / "run.state").write_bytes(b"nonsense")
    result = play.start(3)
    assert result is not None
    assert "ADVERTISE_KEYS" in play.stages()[4:]
    np.testing.assert_allclose(values(result.arrays)["w"], 3 * MEAN, rtol=1e-4)
    (play.folder / "model.state").write_bytes(b"nonsense")
    with pytest.raises(InvalidInput, match=r"run_dir holds a damaged model\.state"):
        play.start(3)


@pytest.mark.parametrize("line", ["{}", "12", "[]", '{"round": "x"}', "{"])
def test_lines_of_rounds_that_can_not_be_read_are_left_out(tmp_path: Path, ledger: Path, line: str) -> None:
    play = Play(tmp_path)
    play.start(2, kill=(2, "UPLOAD"))
    (play.folder / "metrics.jsonl").write_text(line + "\n")
    assert play.start(2) is not None


def test_damaged_moments_of_a_strategy_are_an_error(tmp_path: Path, ledger: Path) -> None:
    play = Play(tmp_path)
    play.start(3, kill=(2, "UPLOAD"), around=FedAdam(fraction_evaluate=0.0))
    state = (play.folder / "model.state").read_bytes()
    at = state.rindex(b"NUMPY")  # Moments come behind the model.
    (play.folder / "model.state").write_bytes(state[:at] + b"NUMPX" + state[at + 5 :])
    with pytest.raises(InvalidInput, match=r"run_dir holds a damaged model\.state"):
        play.start(3, around=FedAdam(fraction_evaluate=0.0))


def test_a_model_that_steps_round_is_announced_as_rounded_after_a_restart(tmp_path: Path, ledger: Path) -> None:
    """Round 1 is not opened, so the model of 64-bit floats stays; nodes hold it in 32 bits, and go on from there."""
    first, folder = {"w": np.random.default_rng(0).normal(size=(64, 64))}, tmp_path / "run"
    grid = LocalGrid(training_app(lambda user, arrays, number: {"w": arrays["w"] + 0.01}), 5)

    def fail(node: int, message: Message) -> None:
        if strategy.history[-1].number == 2:
            raise Killed
        if stage_of(message) == "UNMASK":
            raise RuntimeError

    grid.before = fail
    strategy = secagg(run_dir=folder, downlink_bits=4)
    with pytest.raises(Killed):
        strategy.start(grid=grid, initial_arrays=model(**first), num_rounds=3, timeout=0.3)
    grid.before = None
    strategy = secagg(run_dir=folder, downlink_bits=4)
    strategy.start(grid=grid, initial_arrays=model(**first), num_rounds=3, timeout=0.3)
    assert [record.failure for record in strategy.history] == [None, None]


def test_a_folder_with_the_run_of_another_model_is_refused(tmp_path: Path, ledger: Path) -> None:
    play = Play(tmp_path)
    play.start(3, kill=(2, "UPLOAD"))
    with pytest.raises(InvalidInput, match="run_dir holds a run of another model"):
        play.strategy = secagg(run_dir=play.folder)
        play.strategy.start(grid=play.grid, initial_arrays=model(w=START[:10]), num_rounds=3)


def test_a_run_folder_inside_another_strategy_is_refused(tmp_path: Path, ledger: Path) -> None:
    """The outer one runs the rounds, so nobody could resume them."""
    inner = SecAgg(FedAvg(fraction_evaluate=0.0), run_dir=tmp_path)
    outer = PassThrough(inner)
    with pytest.raises(InvalidInput, match="run_dir must not be given to a SecAgg inside another strategy"):
        outer.start(LocalGrid(training_app(step), USERS), model(w=START), num_rounds=1)


def test_a_second_start_after_a_resumed_one_plays_all_its_rounds(tmp_path: Path, ledger: Path) -> None:
    play = Play(tmp_path)
    assert play.start(3, kill=(2, "UPLOAD")) is None
    assert play.start(3)
    play.seen.clear()
    play.strategy.start(play.grid, model(w=START), num_rounds=3, timeout=0.3, evaluate_fn=play.keep)
    assert play.seen == [0, 1, 2, 3]
