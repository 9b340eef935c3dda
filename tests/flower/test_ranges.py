"""Nodes find the range of each array by themselves, under the masks; what lies beyond is clipped and never fatal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from flower.local_grid import LocalGrid, content_of, model, stage_of, training_app, values
from sparsesecagg.flower import RoundOptions, SecAgg


def moving(moves: dict[str, Any], spread: float = 0.0) -> Any:
    """Return a training function that moves each array by so much, each node by a little more than the one before."""

    def train(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        factor = 1 + spread * (partition - 4.5)
        return {name: arrays[name] + np.asarray(factor * moves[name], arrays[name].dtype) for name in arrays}

    return train


def run(
    train: Any, start: Any, rounds: int = 5, options: RoundOptions | None = None, downlink_bits: int = 4
) -> tuple[SecAgg, dict[str, np.ndarray], LocalGrid]:
    options = options or RoundOptions(alpha=0.5)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), options, gain=1.0)
    strategy.downlink_bits = downlink_bits
    grid = LocalGrid(training_app(train, weight=lambda partition: 50 + 10 * partition), 10)
    result = strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds)
    return strategy, values(result.arrays), grid


@pytest.mark.parametrize("max_weight", [0, 200], ids=["uniform", "weighted"])
def test_arrays_that_differ_by_a_factor_of_a_million_arrive_without_an_option(max_weight: int) -> None:
    moves = {"tiny": 4e-4, "five": 5.0, "huge": 400.0, "bias": 0.02}
    start = model(
        tiny=np.zeros((40, 50), np.float32),
        five=np.zeros((40, 50), np.float32),
        huge=np.zeros((40, 50), np.float32),
        bias=np.zeros(40, np.float32),
    )
    options = RoundOptions(alpha=0.5, max_weight=max_weight)
    strategy, after, _ = run(moving(moves, spread=0.02), start, rounds=6, options=options, downlink_bits=32)
    factor = 1 if max_weight == 0 else 1.02  # Heavier nodes move further.
    for name, move in moves.items():
        sent = 6 if name == "bias" else 3  # A matrix is sent in every second round, a vector in every one.
        assert after[name].mean() == pytest.approx(sent * move * factor, rel=0.02)
        assert after[name].std() < 0.1 * sent * move
    assert [record.failure for record in strategy.history] == [None] * 6
    assert sum(record.clipped or 0 for record in strategy.history) == 0


def test_words_are_short_without_being_asked() -> None:
    start = model(w=np.zeros((100, 500), np.float32))
    strategy, _, _ = run(moving({"w": 0.01}), start, rounds=3)
    assert strategy._run.params.modulus_bits == 8  # type: ignore[union-attr]
    assert strategy.history[1].line()["upload_bytes"] < 4 * 50_000 / 7.5
    assert [record.exchanges for record in strategy.history] == [6, 2, 2]


def test_a_round_trains_once_though_its_ranges_are_found_first() -> None:
    trained: list[int] = []

    def train(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        trained.append(partition)
        return {"w": arrays["w"] + np.float32(0.01)}

    _, _, grid = run(train, model(w=np.zeros((10, 10), np.float32)), rounds=2)
    assert sorted(trained) == sorted([*range(10), *range(10)])
    uploads = [content_of(reply)["secagg"] for _, reply in grid.replied if stage_of(reply) == "UPLOAD"]
    assert len(uploads) == 30


def test_a_node_that_lost_what_it_trained_trains_again(ledger: Any) -> None:
    trained: list[int] = []

    def train(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        trained.append(partition)
        for path in ledger.glob("node-3/*.update"):
            path.unlink()
        return {"w": arrays["w"] + np.float32(0.01)}

    def lose(node: int, message: Any) -> None:
        for path in ledger.glob("node-3/*.update"):
            path.unlink()

    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), RoundOptions(alpha=0.5))
    grid = LocalGrid(training_app(train), 10, before=lose)
    strategy.start(grid=grid, initial_arrays=model(w=np.zeros((10, 10), np.float32)), num_rounds=1)
    assert sorted(trained) == sorted([*range(10), 3])
    assert strategy.history[0].survivors == 10
    assert not list(ledger.rglob("*.update"))


def test_variances_of_raw_features_arrive_though_they_span_ten_decimal_places() -> None:
    """A BatchNorm layer over raw features: a wrong sign of one small variance would make the model useless."""
    targets = np.array([2e5, 40.0, 1.0, 3e-3, 2e-4], np.float32)

    def train(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        variance = arrays["bn.running_var"]
        seen = targets * np.float32(1 + 0.05 * (partition - 4.5))
        return {"w": arrays["w"] + np.float32(1e-3), "bn.running_var": variance + np.float32(0.9) * (seen - variance)}

    start = model(w=np.zeros((30, 20), np.float32), **{"bn.running_var": np.ones(5, np.float32)})
    for max_weight in (0, 200):
        options = RoundOptions(alpha=0.2, max_weight=max_weight)
        _, after, _ = run(train, start, rounds=8, options=options)
        expected = targets * (1 if max_weight == 0 else 1.05)
        np.testing.assert_allclose(after["bn.running_var"], expected, rtol=0.03)


def test_a_clip_that_is_told_holds_and_loses_what_lies_beyond_it() -> None:
    """The control: clipped, counted, and never fatal."""
    for max_weight in (0, 200):
        options = RoundOptions(alpha=1.0, clip=1.0, max_weight=max_weight)
        strategy, after, _ = run(
            moving({"w": 5.0}), model(w=np.zeros((9, 10), np.float32)), rounds=3, options=options, downlink_bits=32
        )
        assert [record.failure for record in strategy.history] == [None] * 3
        assert [record.clipped for record in strategy.history] == [10 * 90] * 3
        assert [record.exchanges for record in strategy.history] == [4, 2, 2]
        np.testing.assert_allclose(after["w"], 3.0, rtol=0.02)


def test_one_node_far_beyond_the_others_is_clipped_and_the_round_counts() -> None:
    def train(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        return {"w": arrays["w"] + np.float32(1e6 if partition == 7 else 0.01)}

    strategy, after, _ = run(train, model(w=np.zeros((40, 50), np.float32)), rounds=1, downlink_bits=32)
    assert strategy.history[0].failure is None
    assert strategy.history[0].clipped == 1000
    assert np.abs(after["w"]).max() < 0.05


def test_what_only_a_few_rounds_change_costs_its_part_on_the_way_down() -> None:
    """With slices a step carries the covered coordinates only, and in all cases four bits each or less."""
    start = model(w=np.zeros((200, 500), np.float32), b=np.zeros(200, np.float32))
    sizes = {}
    for alpha in (0.1, 0.5, 1.0):
        options = RoundOptions(alpha=alpha)
        strategy, _, _ = run(moving({"w": 0.01, "b": 0.1}, 0.05), start, rounds=4, options=options)
        sizes[alpha] = strategy.history[-1].line()["downlink_bytes"]
        assert strategy.history[0].line()["downlink_bytes"] >= 4 * 100_200  # The whole model, once.
    assert sizes[0.1] < 0.1 * 50_000 + 3000
    assert sizes[0.5] < 0.5 * 50_000 + 3000
    assert sizes[0.1] < sizes[0.5] < sizes[1.0] < 53_000


def test_a_model_of_one_parameter_needs_no_option() -> None:
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0))
    grid = LocalGrid(training_app(moving({"w": 0.5})), 10)
    result = strategy.start(grid=grid, initial_arrays=model(w=np.ones((1, 1))), num_rounds=2)
    np.testing.assert_allclose(values(result.arrays)["w"], 2.0, rtol=0.02)


def towards_one(still: Any) -> Any:
    """Return training that pulls every parameter towards 1, with some noise; `still` names the arrays that stand."""

    def train(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(1000 * server_round + partition)
        moved = {}
        for name, array in arrays.items():
            step = 0.2 * (1 - array) + 0.05 * rng.standard_normal(array.shape)
            moved[name] = array if still(name, server_round) else array + step.astype(np.float32)
        return moved

    return train


@pytest.mark.parametrize(
    "still",
    [
        lambda name, number: number == 1,
        lambda name, number: name == "head" and number <= 3,
        lambda name, number: name == "head" and 4 <= number <= 12,
    ],
    ids=["warm-up", "frozen at first", "frozen later"],
)
def test_a_layer_that_stands_still_for_a_while_learns_afterwards(still: Any) -> None:
    start = model(body=np.zeros((40, 80), np.float32), head=np.zeros((20, 80), np.float32))
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), timeout=1)
    result = strategy.start(LocalGrid(training_app(towards_one(still)), 10), start, num_rounds=30)
    for array in values(result.arrays).values():
        assert np.sqrt(np.square(array - 1).mean()) < 0.1
    assert max(record.clip or 0 for record in strategy.history) < 1


def test_groups_that_differ_vote_for_ranges_of_their_own() -> None:
    """The range is the median of theirs; cells one by one, the median of votes may be none at all."""

    def train(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        return {"w": arrays["w"] + np.float32(0.9 * 2.0**-partition)}

    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), RoundOptions(alpha=1.0), over="groups", groups=3, gain=1.0)
    strategy.start(LocalGrid(training_app(train), 9), model(w=np.zeros((40, 40), np.float32)), num_rounds=2)
    assert (strategy.history[0].clip or 0) > 2.0**-8


@pytest.mark.parametrize("groups", [8, 4])
def test_whole_arrays_and_metrics_are_weighted_means_over_all_groups(groups: int) -> None:
    """Each group sends its own copy of a bias: a copy of heavy users counts for more."""

    def train(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        return {name: array + np.float32(partition == 0) for name, array in arrays.items()}

    app = training_app(
        train, lambda partition: 1 if partition else 128, lambda partition: {"loss": float(not partition)}
    )
    options = RoundOptions(alpha=0.3, max_weight=128, group_size=groups, modulus_bits=32)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), options, metrics={"loss": 2.0}, timeout=1, gain=1)
    start = model(w=np.zeros((40, 40), np.float32), b=np.zeros(50, np.float32))
    result = strategy.start(LocalGrid(app, 8), start, num_rounds=1)
    assert values(result.arrays)["b"] == pytest.approx(128 / 135, abs=1e-3)
    assert result.train_metrics_clientapp[1]["loss"] == pytest.approx(128 / 135, abs=1e-3)
