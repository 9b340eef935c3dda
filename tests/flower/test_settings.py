"""What `SecAgg` is told is checked when it is told."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from flower.local_grid import LocalGrid, Silent, model, secagg, stage_of, training_app, values
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import SecAgg
from sparsesecagg.flower.settings import DEFAULTS, Clips, headroom
from sparsesecagg.protocol import RoundOptions


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"alpha": 0}, "alpha"),
        ({"alpha": 1.5}, "alpha"),
        ({"alpha": "much"}, "alpha"),
        ({"pattern": "slized"}, "pattern"),
        ({"modulus_bits": 33}, "modulus_bits"),
        ({"max_weight": -1}, "max_weight"),
        ({"pattern": "pairwise", "max_weight": 10}, "max_weight"),
        ({"clip": 0.0}, "clip"),
        ({"clip": float("nan")}, "clip"),
        ({"threshold": 1}, "threshold"),
        ({"neighbours": 1}, "neighbours"),
        ({"group_size": 2}, "group_size"),
        ({"dropout": 0.9}, "dropout"),
    ],
    ids=str,
)
def test_an_option_that_can_not_work_is_refused_by_name_at_construction(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SecAgg(FedAvg(), RoundOptions(**settings))
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"min_updated": 1.5}, "min_updated"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"metrics": {"loss": 0.0}}, "metrics"),
        ({"metrics": {"loss": "ten"}}, "metrics"),
        ({"gain": 0.5}, "gain"),
        ({"gain": "much"}, "gain"),
        ({"downlink_bits": 5}, "downlink_bits"),
    ],
    ids=str,
)
def test_so_is_a_setting_of_the_strategy(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SecAgg(FedAvg(), **settings)
    assert caught.value.option == option


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"alpha": 0.01},
        {"pattern": "full", "neighbours": 30},
        {"pattern": "pairwise", "alpha": 0.1},
        {"modulus_bits": 8},
        {"threshold": 40},
        {"alpha": 0.02, "group_size": 60},
    ],
    ids=str,
)
def test_an_option_that_works_for_some_cohort_is_taken(settings: dict[str, Any]) -> None:
    SecAgg(FedAvg(), RoundOptions(**settings))


def test_a_strategy_has_at_most_ten_parameters() -> None:
    assert len(signature(SecAgg).parameters) <= 10


def test_a_threshold_that_does_not_fit_the_cohort_stops_the_first_round() -> None:
    strategy = secagg(threshold=40)
    with pytest.raises(InvalidInput, match="threshold must be from 3 to 5"):
        strategy.start(
            grid=LocalGrid(training_app(lambda p, a, r: a), 5), initial_arrays=model(w=np.zeros(9, np.float32))
        )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"pattern": "pairwise", "alpha": 0.5, "max_weight": 0}, "reveals many single values to the server"),
        ({"alpha": 0.3}, "10 nodes in one group, alpha 0.3 with words of 32 bits"),
        ({"max_weight": 0}, "all nodes weigh the same"),
        ({}, "every sum holds 6 honest nodes or more against a semi-honest server with 1 nodes colluding"),
        ({"group_size": 5}, "10 nodes in 2 groups of 5 or more"),
    ],
    ids=str,
)
def test_what_the_options_come_to_is_said_once(settings: dict[str, Any], sentence: str, caplog: Any) -> None:
    grid = LocalGrid(
        training_app(lambda p, a, r: a), 10, node_config=lambda index: {"secagg-patterns": "sliced,pairwise"}
    )
    secagg(**settings).start(grid=grid, initial_arrays=model(w=np.zeros(90, np.float32)), num_rounds=2)
    assert caplog.text.count(sentence) == 1


class TestClips:
    """The clips of the next round follow the last mean, for each array by itself."""

    def test_what_is_learned_first_replaces_the_guess(self) -> None:
        clips = Clips(64.0)
        assert clips.of([10_000, 10_000]) == (64.0, 64.0)
        clips.learn([0.001, 20.0], 0)
        small, large = clips.of([10_000, 10_000])
        assert small == pytest.approx(0.001 * headroom(10_000))
        assert large == pytest.approx(20.0 * headroom(10_000))

    def test_later_they_change_by_a_factor_of_four_at_most(self) -> None:
        clips = Clips(1.0)
        clips.of([100])
        clips.learn([1.0], 0)
        (before,) = clips.of([100])
        clips.learn([1000.0], 0)
        assert clips.of([100]) == (4 * before,)

    def test_clipped_values_widen_the_arrays_whose_mean_is_near_its_clip(self) -> None:
        clips = Clips(1.0)
        clips.of([100, 100])
        clips.learn([0.9, 0.001], 17)
        assert clips.of([100, 100]) == (4.0, 1.0)

    def test_nothing_known_changes_nothing(self) -> None:
        clips = Clips(1.0)
        clips.of([100])
        clips.learn([float("nan")], 0)
        clips.learn([0.0], 0)
        assert clips.of([100]) == (1.0,)

    def test_a_saved_copy_goes_on_alike(self) -> None:
        first, second = Clips(1.0), Clips(1.0)
        first.of([100])
        first.learn([0.5], 0)
        second.restore(first.save())
        for clips in (first, second):
            clips.learn([0.25], 0)
        assert first.of([100]) == second.of([100])

    def test_batch_statistics_survive_the_first_round_of_the_defaults(self) -> None:
        """A running variance that moves by 40 beside weights that move by thousandths, without any option."""
        moves = {"weight": 0.004, "variance": 40.0}

        def train(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
            return {name: arrays[name] + np.float32(move) for name, move in moves.items()}

        strategy = SecAgg(FedAvg(fraction_evaluate=0.0), replace(DEFAULTS, alpha=0.2), gain=1.0, downlink_bits=32)
        start = model(weight=np.zeros(2000, np.float32), variance=np.ones(20, np.float32))
        result = strategy.start(grid=LocalGrid(training_app(train), 10), initial_arrays=start, num_rounds=5)
        after = values(result.arrays)
        # Each coordinate is sent in one of five rounds.
        np.testing.assert_allclose(after["variance"], 41.0, rtol=1e-3)
        np.testing.assert_allclose(after["weight"].mean(), 0.004, rtol=0.02)
        assert [record.clipped for record in strategy.history] == [0] * 5


def test_honest_updates_beyond_the_clip_are_clipped_and_counted_and_the_clip_grows() -> None:
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(5.0)})
    strategy = secagg(clip=1.0, max_weight=0)
    result = strategy.start(
        grid=LocalGrid(app, 5), initial_arrays=model(w=np.zeros(90, np.float32)), num_rounds=4, timeout=1.0
    )
    assert [record.failure for record in strategy.history] == [None] * 4
    assert strategy.history[0].clipped == 5 * 90
    assert strategy.history[-1].clipped == 0
    np.testing.assert_allclose(values(result.arrays)["w"], 1 + 4 + 5 + 5, rtol=1e-4)


def test_uploads_wait_as_long_as_each_start_is_told() -> None:
    def stuck(node: int, message: Any) -> None:
        if node == 101 and stage_of(message) == "UPLOAD":
            raise Silent

    strategy = secagg(threshold=3)
    for seconds in (1.5, 0.3):
        grid = LocalGrid(training_app(lambda p, a, r: a), 5, before=stuck)
        strategy.start(grid=grid, initial_arrays=model(w=np.zeros(9, np.float32)), num_rounds=1, timeout=seconds)
        strategy._courier._outstanding.clear()  # Another grid, other nodes.
    first, second = (record.total("seconds")["UPLOAD"] for record in strategy.history)
    assert first >= 1.5 > second >= 0.3


def test_a_stage_waits_as_long_as_it_is_told_and_no_longer() -> None:
    import time

    def stuck(node: int, message: Any) -> None:
        if node == 101 and stage_of(message) == "SHARE_KEYS":
            raise Silent

    strategy = secagg(timeout=0.5, threshold=3)
    grid = LocalGrid(training_app(lambda p, a, r: a), 5, before=stuck)
    start = time.monotonic()
    strategy.start(grid=grid, initial_arrays=model(w=np.zeros(9, np.float32)), num_rounds=1)
    assert 0.5 <= strategy.history[0].total("seconds")["SHARE_KEYS"] < 2
    assert time.monotonic() - start < 20
