"""Steps instead of models on the way down: every node trains on the server's model, bit for bit, for fewer bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

import msgspec
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, Result

from flower.local_grid import LocalGrid, content_of, model, round_of, secagg, stage_of, training_app, values
from sparsesecagg.downlink import ModelStep, Replica, StepLog, Steps, decode_catchup
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.flower.arrays import Template
from sparsesecagg.flower.downlink import STEPS, Arrangement, Downlink, Held, Order

NODES, DIM = 5, 3000
START: dict[str, Any] = {
    "weights": np.random.default_rng(1).normal(size=(DIM // 10, 10)).astype(np.float32),
    "small": np.full(7, 1e-6, np.float32),
    "counter": np.array([3], np.int64),
}
WHOLE = 4 * (DIM + 7) + 8


class Play:
    """A run whose nodes remember which models they were given."""

    def __init__(self, ledger: Path, strategy: Any = None, **settings: Any) -> None:
        self.seen: dict[tuple[int, int], dict[str, np.ndarray]] = {}
        self.folder = ledger
        self.grid = LocalGrid(
            training_app(self.train), NODES, node_config=lambda index: {"secagg-ledger": str(self.ledger(index))}
        )
        self.strategy = secagg(strategy, **{"max_weight": 0, "threshold": 3, "downlink_bits": 4, **settings})
        self.models: dict[int, dict[str, np.ndarray]] = {}
        self.away: dict[int, set[int]] = {}
        """By round: the nodes that are not online."""

    def ledger(self, index: int) -> Path:
        """Where a node keeps what it keeps."""
        return self.folder / str(index)

    def train(self, partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        self.seen[server_round, partition] = copy.deepcopy(arrays)
        rng = np.random.default_rng([partition, server_round])
        moved = {
            "weights": arrays["weights"] + rng.normal(0, 0.01, arrays["weights"].shape).astype(np.float32),
            "small": arrays["small"] * np.float32(1.5),
        }
        return {**arrays, **{name: moved[name].astype(arrays[name].dtype) for name in moved}}

    def keep(self, server_round: int, arrays: ArrayRecord) -> None:
        self.models[server_round] = copy.deepcopy(values(arrays))
        self.grid.online = {100 + index for index in range(NODES) if index not in self.away.get(server_round + 1, ())}

    def start(self, rounds: int, start: dict[str, np.ndarray] | None = None) -> Result:
        return self.strategy.start(
            grid=self.grid, initial_arrays=model(**(start or START)), num_rounds=rounds, timeout=0.3,
            evaluate_fn=self.keep,
        )  # fmt: skip

    def require_same_models(self, partitions: list[int], rounds: list[int]) -> None:
        """Assert that nodes trained on the model that the server held, bit for bit."""
        for server_round in rounds:
            for partition in partitions:
                found, held = self.seen[server_round, partition], self.models[server_round - 1]
                assert list(found) == list(held)
                for name, array in held.items():
                    assert found[name].dtype == array.dtype
                    assert found[name].tobytes() == array.tobytes()

    def sent(self, partition: int) -> dict[int, ArrayRecord]:
        """Return what a node was sent as the model, by round."""
        return {
            round_of(message): content_of(message)["arrays"]
            for node, message in self.grid.sent
            if node == 100 + partition and stage_of(message) == "UPLOAD"
        }

    def whole(self, partition: int) -> list[int]:
        """Return the rounds in which a node was sent the whole model."""
        return [number for number, record in self.sent(partition).items() if STEPS not in record]


def faults(play: Play, before: Callable[[int, int, Message], None]) -> None:
    """Let a function see each message with its node and round."""
    play.grid.before = lambda node, message: before(node - 100, round_of(message), message)


@pytest.mark.parametrize(
    "strategy", [FedAvg, FedAvgM, lambda **options: FedAdam(eta=0.01, **options)], ids=["FedAvg", "FedAvgM", "FedAdam"]
)
def test_all_nodes_train_on_the_servers_model_bit_for_bit_and_get_it_whole_once(ledger: Path, strategy: Any) -> None:
    play = Play(ledger, strategy(fraction_evaluate=0.0))
    result = play.start(4)
    assert all(record.failure is None for record in play.strategy.history)
    play.require_same_models(list(range(NODES)), [1, 2, 3, 4])
    assert all(play.whole(partition) == [1] for partition in range(NODES))
    first, *later = [record.line()["downlink_bytes"] for record in play.strategy.history]
    assert first == WHOLE
    assert all(0 < size < WHOLE / 5 for size in later)
    for name, array in values(result.arrays).items():
        assert array.tobytes() == play.models[4][name].tobytes()


def test_the_rounded_model_follows_the_exact_one(ledger: Path) -> None:
    """Rounding errors are kept, so they do not add up; an array of tiny values has scales of its own."""
    rounded, exact = Play(ledger / "a"), Play(ledger / "b", downlink_bits=32)
    rounded.start(5)
    exact.start(5)
    moved = np.abs(exact.models[5]["weights"] - START["weights"])
    assert np.abs(rounded.models[5]["weights"] - exact.models[5]["weights"]).mean() < 0.2 * moved.mean()
    np.testing.assert_allclose(rounded.models[5]["small"], exact.models[5]["small"], rtol=0.2)
    assert exact.strategy.history[-1].line()["downlink_bytes"] == WHOLE


@pytest.mark.parametrize("bits", [2, 8])
def test_steps_may_have_other_widths(ledger: Path, bits: int) -> None:
    play = Play(ledger, downlink_bits=bits)
    play.start(3)
    play.require_same_models(list(range(NODES)), [1, 2, 3])
    size = play.strategy.history[-1].line()["downlink_bytes"]
    most = DIM * bits / 8 + 4 * 7 + 8 + 120
    assert most / 2 < size < most


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_types_are_rebuilt_from_the_same_float32(ledger: Path, dtype: Any) -> None:
    play = Play(ledger)
    play.start(3, {**START, "weights": START["weights"].astype(dtype)})
    play.require_same_models(list(range(NODES)), [2, 3])
    assert play.seen[3, 0]["weights"].dtype == dtype
    assert play.whole(0) == [1]


def test_a_node_that_missed_rounds_gets_the_steps_it_lacks(ledger: Path) -> None:
    play = Play(ledger)
    play.away = {2: {1}, 3: {1}}
    play.start(6)
    play.require_same_models([0, 2, 3, 4], [1, 2, 3, 4, 5, 6])
    missed = [number for number in range(1, 7) if (number, 1) not in play.seen]
    assert 2 in missed and 6 not in missed
    play.require_same_models([1], [number for number in range(1, 7) if number not in missed])
    assert play.whole(1) == [1]
    back = min(number for number in range(3, 7) if number not in missed)
    steps = decode_catchup(play.sent(1)[back][STEPS].data)
    assert isinstance(steps, Steps)
    assert len(steps.steps) == back - 1


def test_a_node_that_has_lost_its_models_says_so_and_gets_the_whole_one_in_the_next_round(ledger: Path) -> None:
    """Its ledger is still there: only the model is lost."""
    play = Play(ledger)

    def lose(node: int, number: int, message: Message) -> None:
        if node == 1 and number == 2 and stage_of(message) == "UPLOAD":
            rmtree(play.ledger(1) / "models")

    faults(play, lose)
    play.start(4)
    assert (2, 1) not in play.seen
    refused = [
        str(content_of(reply)["secagg"]["refused"])
        for node, reply in play.grid.replied
        if node == 101 and stage_of(reply) == "UPLOAD" and "refused" in content_of(reply)["secagg"]
    ]
    assert len(refused) == 1
    assert refused[0].startswith("WrongStep: ")
    assert play.whole(1) == [1, 3]
    play.require_same_models([1], [1, 3, 4])
    assert [record.survivors for record in play.strategy.history] == [5, 4, 5, 5]


def test_a_restarted_node_goes_on_from_the_model_on_its_disk(ledger: Path) -> None:
    """Flower's context is new, and so is the process; the folder is the same. A damaged file counts as none."""
    play = Play(ledger)

    def restart(node: int, number: int, message: Message) -> None:
        if stage_of(message) == "UPLOAD" and number == 3:
            old = play.grid.contexts[100 + node]
            play.grid.contexts[100 + node] = copy.copy(old)
            play.grid.contexts[100 + node].state = type(old.state)()
        if stage_of(message) == "UPLOAD" and number == 4 and node == 2:
            for path in (play.ledger(2) / "models").iterdir():
                path.write_bytes(path.read_bytes()[:-1] + b"\x01")

    faults(play, restart)
    play.start(5)
    play.require_same_models([0, 1, 3, 4], [1, 2, 3, 4, 5])
    play.require_same_models([2], [1, 2, 3, 5])
    assert play.whole(0) == [1]
    assert play.whole(2) == [1, 5]


def test_arrays_that_stay_as_they_are_cost_no_round(ledger: Path) -> None:
    """A frozen matrix, beside which a bias is trained: equal models have different numbers."""
    play = Play(ledger)
    play.grid.app = training_app(lambda user, arrays, number: {**arrays, "small": arrays["small"] * np.float32(1.5)})
    play.start(6)
    assert [record.failure for record in play.strategy.history] == [None] * 6
    assert [play.whole(0), play.whole(4)] == [[1], [1]]


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: b"nonsense", lambda data: data[:-9]], ids=["empty", "other", "cut"]
)
def test_a_file_that_can_not_be_read_says_so(damage: Callable[[bytes], bytes]) -> None:
    template = Template.of(model(w=np.zeros((3, 4), np.float32), n=np.int64(3)))
    arrangement = Arrangement(template, Order(bytes(32), 2, (0,)))
    held = Held(arrangement, Replica(np.arange(12, dtype=np.float32), 5))
    assert Held.decode(held.encode()).name == held.name
    with pytest.raises(MalformedMessage):
        Held.decode(damage(held.encode()))


def test_the_steps_of_another_model_are_no_saved_downlink() -> None:
    own, order = model(w=np.zeros(600, np.float32)), Order(bytes(32), 2, (0,))
    log = StepLog(Arrangement(Template.of(own), order).join(own))
    state = msgspec.msgpack.encode((log.save(), order, 0, {}))
    Downlink().restore(state, own)
    with pytest.raises(MalformedMessage, match="of another model"):
        Downlink().restore(state, model(w=np.zeros(64, np.float32)))


def lying(record: ArrayRecord, change: Callable[[Steps], Steps]) -> ArrayRecord:
    """Return the steps changed by a lying server."""
    found = decode_catchup(record[STEPS].data)
    assert isinstance(found, Steps)
    data = change(found).encode()
    return ArrayRecord({**record, STEPS: Array("uint8", (len(data),), record[STEPS].stype, data)})


def other_levels(steps: Steps) -> Steps:
    """Return steps with one level changed, and the digest of the true model."""
    step = steps.steps[-1]
    levels = bytearray(step.levels)
    levels[0] = 0x11 if levels[0] != 0x11 else 0x12
    return Steps(steps.sequence, steps.dim, steps.digest, (*steps.steps[:-1], _with(step, levels=bytes(levels))))


def no_steps(steps: Steps) -> Steps:
    """Return the claim that the node holds the latest model already."""
    return Steps(steps.sequence, steps.dim, steps.digest, ())


def from_elsewhere(steps: Steps) -> Steps:
    """Return steps that start from a model that nobody holds."""
    step = _with(steps.steps[0], digest_before=b"elsewhre")
    return Steps(steps.sequence, steps.dim, steps.digest, (step,))


def _with(step: ModelStep, **changes: Any) -> ModelStep:
    return ModelStep(**{**vars(step), **changes})


@pytest.mark.parametrize(
    ("change", "error"),
    [(other_levels, "WrongStep"), (no_steps, "holds none"), (from_elsewhere, "holds none")],
    ids=["levels", "no steps", "another model"],
)
def test_a_step_that_does_not_fit_is_refused_by_name_and_costs_one_round(
    ledger: Path, change: Callable[[Steps], Steps], error: str
) -> None:
    play = Play(ledger)

    def lie(node: int, number: int, message: Message) -> None:
        if node == 1 and number == 2 and stage_of(message) == "UPLOAD":
            content_of(message)["arrays"] = lying(content_of(message)["arrays"], change)

    faults(play, lie)
    play.start(4)
    refused = [
        str(content_of(r)["secagg"].get("refused")) for n, r in play.grid.replied if n == 101 and round_of(r) == 2
    ]
    assert error in refused[0]
    assert (2, 1) not in play.seen
    assert play.whole(1) == [1, 3]
    play.require_same_models([1], [3, 4])


def test_a_node_that_is_led_to_another_model_takes_no_part(ledger: Path) -> None:
    """The lie fits in itself, a whole model that is another one. The order is not about it."""
    play = Play(ledger)

    def lie(node: int, number: int, message: Message) -> None:
        if node == 1 and number == 2 and stage_of(message) == "UPLOAD":
            arrays = values(play.sent(1)[1])
            arrays["weights"] = arrays["weights"] + np.float32(0.5)
            content_of(message)["arrays"] = model(**arrays)
            control = dict(content_of(message)["secagg"])
            content_of(message)["secagg"] = type(content_of(message)["secagg"])({**control, "model": 1})

    faults(play, lie)
    play.start(3)
    refused = [
        str(content_of(r)["secagg"].get("refused")) for n, r in play.grid.replied if n == 101 and round_of(r) == 2
    ]
    assert refused[0].startswith("WrongBinding")
    # What it was shown was not kept: steps of a model that no order named would lead nowhere.
    play.require_same_models([1], [3])


def test_a_model_with_too_few_parameters_for_steps_comes_whole(ledger: Path) -> None:
    play = Play(ledger)
    play.start(3, {"weights": np.zeros((2, 3), np.float32), "small": np.ones(2, np.float32)})
    play.require_same_models(list(range(NODES)), [1, 2, 3])
    assert play.whole(0) == [1, 2, 3]


def test_a_model_that_is_not_finite_fails_the_round_and_leaves_the_model_as_it_was(ledger: Path) -> None:
    class Broken(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            assert arrays is not None
            return (model(**{**values(arrays), "small": np.full(7, np.nan)}) if server_round == 2 else arrays), metrics

    play = Play(ledger, Broken(fraction_evaluate=0.0))
    play.start(3)
    assert [record.failure is None for record in play.strategy.history] == [True, False, True]
    assert "finite" in str(play.strategy.history[1].failure)
    play.require_same_models(list(range(NODES)), [1, 2, 3])


def test_a_folder_that_can_not_be_written_costs_whole_models_and_nothing_else(ledger: Path) -> None:
    play = Play(ledger)
    for index in range(NODES):
        play.ledger(index).mkdir(mode=0o700)
        (play.ledger(index) / "models").write_text("in the way")
    play.start(2)
    play.require_same_models(list(range(NODES)), [1, 2])
    assert play.whole(0) == [1, 2]


def test_an_order_with_arrays_nested_without_end_is_refused() -> None:
    """It comes from the server, and a node that skipped them would run out of stack."""
    order = Order(bytes(32), 2, (0,)).encode()
    assert order[0] == 0x93  # An array of three.
    with pytest.raises(MalformedMessage, match="arranged in steps"):
        Order.decode(b"\x94" + order[1:] + b"\x91" * 100_000 + b"\xc0")


def test_a_quick_run_does_not_take_the_models_of_a_slow_one(ledger: Path) -> None:
    """Two runs on the same nodes: between two rounds of one, the other one has five."""

    def shift(partition: int, arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        return {"w": arrays["w"] + np.float32(0.01 * (partition + number))}

    def quick(number: int, arrays: ArrayRecord) -> None:
        start = model(w=np.ones((60, 70), np.float32))
        secagg(downlink_bits=4).start(LocalGrid(training_app(shift), NODES), start, num_rounds=5)

    slow = secagg(downlink_bits=4)
    start = model(w=np.zeros((80, 100), np.float32))
    slow.start(LocalGrid(training_app(shift), NODES), start, num_rounds=4, evaluate_fn=quick)
    assert [record.failure for record in slow.history] == [None] * 4
