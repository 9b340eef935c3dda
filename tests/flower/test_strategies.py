"""A wrapped strategy gives the model that the same strategy gives in the clear."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, MetricRecord
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedXgbBagging,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)
from msgspec.structs import replace

from flower.local_grid import LocalGrid, PassThrough, content_of, model, secagg, training_app, values
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import RefusedByAll, RoundOptions, SecAgg, secagg_mod
from sparsesecagg.protocol.messages import decode_client_message, encode

AVERAGING: dict[str, Callable[[], Strategy]] = {
    "FedAvg": lambda: FedAvg(fraction_evaluate=0.0),
    "FedAvgM": lambda: FedAvgM(fraction_evaluate=0.0, server_learning_rate=0.7, server_momentum=0.9),
    "FedAdam": lambda: FedAdam(fraction_evaluate=0.0),
    "FedYogi": lambda: FedYogi(fraction_evaluate=0.0),
    "FedAdagrad": lambda: FedAdagrad(fraction_evaluate=0.0),
    "FedProx": lambda: FedProx(fraction_evaluate=0.0, proximal_mu=0.1),
}

NOISE: tuple[Any, ...] = (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)
NODES = 7
START: dict[str, Any] = {
    "weight": np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6),
    "bias": np.zeros(6, np.float64),
    "half": np.full((2, 2), 0.5, np.float16),
    "scale": np.float32(1.5),
    "batches": np.int64(17),
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float32),
}


def shift(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
    """Train: move every array by an amount of its own, and count batches as BatchNorm does."""
    amounts = np.random.default_rng([partition, server_round])
    trained = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            trained[name] = (array + amounts.normal(0, 0.05, array.shape)).astype(array.dtype)
        else:
            trained[name] = array + 1 if name == "batches" else array
    return trained


def weight(partition: int) -> int:
    return 1 << partition % 6  # A point of the grid that weights are rounded to.


def run(
    strategy: Strategy, *, mods: list[Any], rounds: int = 3, start: dict[str, Any] = START
) -> dict[str, np.ndarray]:
    grid = LocalGrid(training_app(shift, weight, mods=mods), NODES)
    return values(strategy.start(grid=grid, initial_arrays=model(**start), num_rounds=rounds).arrays)


@pytest.mark.parametrize("name", AVERAGING)
def test_wrapped_and_unwrapped_strategies_agree_up_to_quantisation(name: str) -> None:
    plain = run(AVERAGING[name](), mods=[])
    secure = run(secagg(AVERAGING[name](), max_weight=32, clip=1.0), mods=[secagg_mod])
    assert secure.keys() == plain.keys()
    for array, before in START.items():
        if before.dtype.kind == "f":
            # A level is 1e-8 here, and optimisers that divide by a small number magnify it by eta / tau = 100. Half
            # precision rounds to 2^-11 by itself, in either run, and that is magnified too.
            tolerance = 1e-2 if array == "half" else 3e-5
            np.testing.assert_allclose(secure[array], plain[array], atol=tolerance, err_msg=array)


@pytest.mark.parametrize("name", AVERAGING)
def test_shapes_and_types_survive_and_integers_stay_as_they_were(name: str) -> None:
    """Plain Flower turns integers into floats; here the global model's own integers are kept, bit for bit."""
    secure = run(secagg(AVERAGING[name](), alpha=0.5), mods=[secagg_mod])
    for array, before in START.items():
        assert secure[array].dtype == np.asarray(before).dtype, array
        assert secure[array].shape == np.shape(before), array
    assert secure["batches"] == 17
    assert secure["mask"].tolist() == [True, False]


def test_short_words_and_sparse_groups_stay_near_the_mean() -> None:
    """With 8 bits every contributor rounds by one level at most, so their mean is off by less than a level."""
    start = {"weight": np.zeros(3000, np.float32)}
    grid = LocalGrid(training_app(lambda p, a, r: {"weight": a["weight"] + np.float32(0.25)}), 12)
    strategy = secagg(alpha=0.5, group_size=6, modulus_bits=8, clip=0.5, max_weight=0)
    after = values(strategy.start(grid=grid, initial_arrays=model(**start), num_rounds=1).arrays)["weight"]
    level = 0.5 / (127 // 6)
    assert np.abs(after - 0.25).max() < level
    assert after.mean() == pytest.approx(0.25, abs=level / 20)  # Stochastic rounding has no bias.


@pytest.mark.parametrize("pattern", ["sliced", "full", "pairwise"])
def test_every_pattern_gives_the_mean_of_equal_updates(pattern: str) -> None:
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.125)})
    grid = LocalGrid(app, 6, node_config=lambda index: {"secagg-patterns": pattern})
    alpha = 1.0 if pattern == "full" else 0.9
    strategy = secagg(pattern=pattern, alpha=alpha, gain=1.0, max_weight=0)
    after = values(strategy.start(grid=grid, initial_arrays=model(w=np.zeros(500, np.float32)), num_rounds=1).arrays)[
        "w"
    ]
    sent = after != 0  # Where nobody sent a coordinate, it stays.
    assert sent.mean() > 0.5 if pattern == "pairwise" else sent.mean() == pytest.approx(alpha)
    np.testing.assert_allclose(after[sent], 0.125, atol=1e-6)


def test_weights_count_and_never_travel_in_the_clear() -> None:
    grid = LocalGrid(training_app(lambda p, a, r: {"w": a["w"] + np.float32(p)}, weight=lambda p: 4**p), 4)
    strategy = secagg(clip=4.0, max_weight=64)
    result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(8, np.float32)), num_rounds=1)
    expected = sum(p * 4**p for p in range(4)) / 85
    np.testing.assert_allclose(values(result.arrays)["w"], expected, rtol=1e-4)
    for _, reply in grid.replied:
        assert not reply.content.metric_records
        assert set(reply.content) <= {"secagg", "secagg-bulk"}


def test_the_wrapped_strategy_sees_the_total_weight_once() -> None:
    seen: list[MetricRecord] = []

    def remember(contents: list[Any], key: str) -> MetricRecord:
        seen.extend(content["metrics"] for content in contents)
        return MetricRecord({"kept": 1})

    inner = FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=remember)
    grid = LocalGrid(training_app(lambda p, a, r: a, weight=lambda p: 1 << p), 6)
    result = secagg(inner, alpha=0.5, max_weight=32).start(
        grid=grid, initial_arrays=model(w=np.zeros(40, np.float32)), num_rounds=1
    )
    assert [dict(record) for record in seen] == [{"num-examples": 63}]
    assert result.train_metrics_clientapp[1]["kept"] == 1


class TestMetrics:
    def app(self) -> Any:
        return training_app(
            lambda p, a, r: a, weight=lambda p: 1 << p, metrics=lambda p: {"loss": 0.5 * p, "age": 7.0 + p}
        )

    def test_client_metrics_stay_on_the_nodes_by_default(self) -> None:
        grid = LocalGrid(self.app(), 4)
        strategy = secagg()
        result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(8, np.float32)), num_rounds=1)
        assert all(name.startswith("secagg-") for name in result.train_metrics_clientapp[1])

    def test_allowed_metrics_are_averaged_by_weight_like_the_model(self) -> None:
        grid = LocalGrid(self.app(), 4)
        strategy = secagg(metrics={"loss": 10.0}, clip=0.01)
        result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(8, np.float32)), num_rounds=2)
        expected = sum(0.5 * p * (1 << p) for p in range(4)) / 15
        for metrics in result.train_metrics_clientapp.values():
            assert metrics["loss"] == pytest.approx(expected, abs=1e-3)
            assert "age" not in metrics

    @pytest.mark.parametrize("odd", [{}, {"loss": float("nan")}, {"loss": [1.0, 2.0]}], ids=str)
    def test_a_metric_that_a_node_does_not_have_counts_as_nothing(self, odd: dict[str, Any]) -> None:
        app = training_app(lambda p, a, r: a, metrics=lambda p: {"loss": 1.0} if p else odd)
        strategy = secagg(metrics={"loss": 2.0})
        result = strategy.start(grid=LocalGrid(app, 5), initial_arrays=model(w=np.zeros(8, np.float32)), num_rounds=1)
        assert strategy.history[0].survivors == 5
        assert result.train_metrics_clientapp[1]["loss"] == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("outer", NOISE, ids=lambda outer: outer.__name__)
@pytest.mark.parametrize("between", [lambda inner: inner, PassThrough], ids=["directly", "through another one"])
def test_flowers_noise_around_secure_aggregation_is_refused(outer: Any, between: Any) -> None:
    """Nodes are sent ranges and steps without it, and rounding makes updates longer than its clip."""
    strategy = outer(between(secagg(max_weight=0)), 0.1, 10, 3)
    with pytest.raises(InvalidInput, match=f"strategy can't be inside {outer.__name__}: its noise does not cover"):
        strategy.start(
            grid=LocalGrid(training_app(lambda p, a, r: a), 4),
            initial_arrays=model(w=np.zeros(64, np.float32)),
            num_rounds=1,
        )


def test_another_strategy_may_be_around_secure_aggregation() -> None:
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(p + 1)})
    strategy = PassThrough(secagg())
    result = strategy.start(grid=LocalGrid(app, 3), initial_arrays=model(w=np.zeros(8, np.float32)), num_rounds=1)
    np.testing.assert_allclose(values(result.arrays)["w"], 2, atol=1e-2)


def test_what_is_set_on_secagg_is_set_on_the_wrapped_strategy() -> None:
    inner = FedAvg(fraction_evaluate=0.0)
    strategy = SecAgg(inner)
    strategy.fraction_train = 0.5
    strategy.mine = 1
    assert inner.fraction_train == 0.5
    assert not hasattr(inner, "mine")
    assert strategy.mine == 1


@pytest.mark.parametrize(
    "strategy",
    [
        Krum(),
        MultiKrum(),
        Bulyan(),
        FedMedian(),
        FedTrimmedAvg(),
        QFedAvg(client_learning_rate=0.1),
        FedXgbBagging(),
        *(each(FedAvg(), 0.1, 10, 3) for each in NOISE),
        SecAgg(FedAvg()),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_strategies_that_need_single_updates_are_refused_by_name(strategy: Strategy) -> None:
    with pytest.raises(InvalidInput, match=f"strategy can't be .*{type(strategy).__name__}"):
        SecAgg(strategy)


def test_a_subclass_of_a_refused_strategy_is_refused_too() -> None:
    class Mine(FedMedian):
        pass

    with pytest.raises(InvalidInput, match="FedMedian"):
        SecAgg(Mine())


def test_a_legacy_strategy_is_refused_with_the_right_module_named() -> None:
    from flwr.server.strategy import FedAvg as LegacyFedAvg

    legacy: Any = LegacyFedAvg()
    with pytest.raises(InvalidInput, match=r"flwr\.serverapp\.strategy"):
        SecAgg(legacy)


class TestGain:
    """A round that covers a part of the model moves that part by gain × mean, and nothing else."""

    def moved(self, gain: Any, rounds: int = 1, **settings: Any) -> tuple[SecAgg, np.ndarray]:
        app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.125)})
        strategy = secagg(alpha=0.25, gain=gain, max_weight=0, **settings)
        result = strategy.start(
            grid=LocalGrid(app, 5), initial_arrays=model(w=np.zeros(400, np.float32)), num_rounds=rounds
        )
        return strategy, values(result.arrays)["w"]

    @pytest.mark.parametrize("gain", [1.0, 2.5, 4.0])
    def test_covered_coordinates_move_by_gain_times_mean_and_others_stay(self, gain: float) -> None:
        strategy, after = self.moved(gain)
        assert np.count_nonzero(after) == 100
        np.testing.assert_allclose(after[after != 0], gain * 0.125, rtol=1e-5)
        assert strategy.history[0].gain == gain

    def test_it_adapts_by_default_between_one_and_one_over_the_part(self) -> None:
        strategy, _ = self.moved("auto", rounds=6)
        gains = [record.gain for record in strategy.history]
        assert gains[0] == 4.0
        assert all(1 <= gain <= 4 for gain in gains)
        assert gains[-1] == 4.0  # All means point the same way.

    def test_one_that_is_too_large_for_the_groups_is_refused_before_anybody_trains(self) -> None:
        with pytest.raises(InvalidInput, match=r"gain must be in \[1, 4\]"):
            self.moved(5.0)

    def test_with_groups_that_cover_everything_it_is_one(self) -> None:
        app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.125)})
        strategy = secagg(alpha=0.5, group_size=3, max_weight=0)
        result = strategy.start(grid=LocalGrid(app, 6), initial_arrays=model(w=np.zeros(400, np.float32)), num_rounds=1)
        np.testing.assert_allclose(values(result.arrays)["w"], 0.125, rtol=1e-5)


def test_what_a_subclass_of_a_strategy_adds_can_be_reached() -> None:
    class Saving(FedAvg):
        folder = ""

        def set_folder(self, folder: str) -> None:
            self.folder = folder

    strategy: Any = SecAgg(Saving())
    strategy.set_folder("here")
    assert strategy.strategy.folder == strategy.folder == "here"
    with pytest.raises(AttributeError):
        _ = strategy.no_such_thing


def test_a_loop_that_a_subclass_has_changed_is_the_one_that_runs() -> None:
    """It calls its parent's loop, helpers of its own, and its own sampling; the sum is secure all the same."""

    class Checkpointing(FedAvg):
        def _checkpoint(self, name: str) -> None:
            self.saved = [*getattr(self, "saved", []), name]

        def start(self, *args: Any, **named: Any) -> Any:
            self._checkpoint("begin")
            result = super().start(*args, **named)
            self._checkpoint("end")
            return result

        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            config["server-round-of-mine"] = server_round
            return super().configure_train(server_round, arrays, config, grid)

    strategy: Any = secagg(Checkpointing(fraction_evaluate=0.0))
    grid = LocalGrid(training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.5)}), 4)
    result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(40, np.float32)), num_rounds=2)
    assert strategy.saved == ["begin", "end"]
    assert len(strategy.history) == 2
    np.testing.assert_allclose(values(result.arrays)["w"], 1.0, rtol=1e-4)
    assert all("arrays" not in content_of(reply) for _, reply in grid.replied)


def test_a_run_stops_when_every_node_refuses_its_first_round_for_the_same_reason() -> None:
    def broken(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        raise ValueError("no such column")

    strategy = secagg()
    with pytest.raises(RefusedByAll, match="the log of the node says why"):
        strategy.start(
            grid=LocalGrid(training_app(broken), 4), initial_arrays=model(w=np.zeros(40, np.float32)), num_rounds=9
        )
    assert len(strategy.history) == 1


def test_whoever_a_strategy_samples_is_in_the_sum() -> None:
    """Keys are exchanged anew where another sample was drawn; ranges, gain and steps go on."""
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.25)})
    strategy = SecAgg(FedAvg(fraction_train=0.5, fraction_evaluate=0.0), RoundOptions(alpha=0.5), gain=1.0)
    start = model(w=np.zeros((40, 40), np.float32))
    strategy.start(grid=LocalGrid(app, 10), initial_arrays=start, num_rounds=4)
    assert [record.survivors for record in strategy.history] == [5] * 4
    assert strategy.history[0].exchanges == 6  # Keys, ranges, and the round.
    assert {record.exchanges for record in strategy.history[1:]} <= {2, 4}


def test_a_node_that_makes_rounds_fail_is_excluded_also_where_the_strategy_samples() -> None:
    """Each sample has keys of its own; who was found out must not be forgotten with them."""

    def lie(node: int, reply: Message) -> list[Message]:
        if node == 100 and reply.has_content() and (packages := content_of(reply).get("secagg", {}).get("packages")):
            lies = [replace(decode_client_message(each), commitment=bytes(32)) for each in packages]
            content_of(reply)["secagg"]["packages"] = [encode(each) for each in lies]
        return [reply]

    random.seed(1)
    strategy = secagg(FedAvg(fraction_evaluate=0.0, fraction_train=0.7), timeout=1)
    grid = LocalGrid(training_app(lambda partition, arrays, number: {"w": arrays["w"] + np.float32(1)}), 10, after=lie)
    strategy.start(grid, model(w=np.zeros(400, np.float32)), num_rounds=8)
    assert sum(record.failure is not None for record in strategy.history) == 1


@pytest.mark.parametrize("bits", [4, 32])
def test_integers_beyond_what_floats_hold_stay_as_they_were(bits: int) -> None:
    first = {"w": np.zeros(400, np.float32), "n": np.array([2**53 + 1, -3]), "u": np.array([2**64 - 1], np.uint64)}

    def shift(partition: int, arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        return {**arrays, "w": arrays["w"] + np.float32(0.5)}

    result = secagg(downlink_bits=bits).start(LocalGrid(training_app(shift), 5), model(**first), num_rounds=2)
    after = values(result.arrays)
    assert all(np.array_equal(after[name], first[name]) for name in ("n", "u"))
