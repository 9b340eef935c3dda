"""The clip of the next round follows the last mean, and grows when values were clipped."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from engines.local_grid import LocalGrid, model, training_app, values
from sparsesecagg.engines.flower.clip import GROWTH, Clips, headroom
from sparsesecagg.flower import SecAgg


@given(value=st.floats(1e-6, 1e6), largest=st.floats(1e-9, 1e9), clipped=st.sampled_from([None, 0, 7]))
def test_one_round_moves_a_clip_within_bounds(value: float, largest: float, clipped: int | None) -> None:
    clips = Clips(value)
    clips.of([100])
    clips.learn([largest], clipped)
    assert value / GROWTH * 0.999 <= clips.values[0] <= value * GROWTH * 1.001
    if clipped:
        assert clips.values[0] >= value


def test_quiet_rounds_bring_each_clip_to_a_multiple_of_its_arrays_mean() -> None:
    clips = Clips(100.0)
    clips.of([10_000, 10_000])
    for _ in range(10):
        clips.learn([0.02, 30.0], 0)
    assert clips.values == pytest.approx([headroom(10_000) * 0.02, headroom(10_000) * 30.0])


def test_small_arrays_get_more_headroom_because_their_mean_may_be_small_by_chance() -> None:
    assert headroom(1) > headroom(16) > headroom(10_000) > 8


def test_one_mean_near_zero_does_not_take_the_headroom_away() -> None:
    clips = Clips(1.0)
    clips.of([100])
    for largest in (0.05, 0.05, 0.05, 1e-6):
        clips.learn([largest], 0)
    assert clips.values[0] > 0.05 * 8 * 0.5


def test_of_several_arrays_those_without_headroom_left_grow_when_values_were_clipped() -> None:
    clips = Clips(1.0)
    clips.of([100] * 3)
    clips.learn([0.01, 0.9, 0.02], 5)
    assert clips.values == [1.0, GROWTH, 1.0]


def test_without_a_suspect_all_grow() -> None:
    clips = Clips(1.0)
    clips.of([100, 100])
    clips.learn([0.01, 0.02], 5)
    assert clips.values == [GROWTH, GROWTH]


@pytest.mark.parametrize("largest", [0.0, np.nan, np.inf])
def test_a_mean_that_says_nothing_changes_nothing(largest: float) -> None:
    clips = Clips(0.5)
    clips.of([100])
    clips.learn([largest], 0)
    assert clips.values == [0.5]


def test_fixed_clips_stay() -> None:
    clips = Clips(0.5, adaptive=False)
    clips.of([100])
    clips.learn([9.0], 3)
    assert clips.values == [0.5]


def test_another_model_begins_anew() -> None:
    clips = Clips(0.5)
    clips.of([100])
    clips.learn([9.0], 0)
    assert clips.of([100, 7]) == (0.5, 0.5)


def test_clipped_values_are_counted_and_after_a_few_rounds_none_are() -> None:
    """Updates of 1.0 against a first clip of 0.1: the rounds say so, the clip grows, the mean becomes right."""
    grid = LocalGrid(training_app(lambda p, a, r: {"w": a["w"] + np.float32(1)}), 4)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), alpha=1.0, clip=0.1, max_weight=0)
    result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(30, np.float32)), num_rounds=4)
    assert [record.clipped for record in strategy.history] == [120, 120, 0, 0]
    assert [round(record.clip, 6) for record in strategy.history][:3] == [0.1, 0.4, 1.6]
    np.testing.assert_allclose(values(result.arrays)["w"], 0.1 + 0.4 + 1 + 1, rtol=1e-5)


def test_short_words_end_as_close_as_long_ones_when_the_clip_adapts() -> None:
    """Updates halve from round to round; at the first clip twelve bits could not tell the last ones from rounding."""

    def converge(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        return {"w": arrays["w"] + (np.float32(1) - arrays["w"]) * np.float32(0.5)}

    def error(adaptive: bool) -> float:
        grid = LocalGrid(training_app(converge), 6)
        strategy = SecAgg(
            FedAvg(fraction_evaluate=0.0), modulus_bits=12, max_weight=0, clip=2.0, adaptive_clip=adaptive
        )
        result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(300, np.float32)), num_rounds=9)
        return float(np.abs(values(result.arrays)["w"] - (1 - 2**-9)).mean())

    assert error(adaptive=True) < error(adaptive=False) / 2


def test_an_array_that_moves_by_whole_numbers_leaves_the_precision_of_the_others_alone() -> None:
    """As the statistics of a normalisation layer do beside its weights."""

    def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        return {"variance": arrays["variance"] + np.float32(5), "weight": arrays["weight"] + np.float32(0.001)}

    grid = LocalGrid(training_app(step), 5)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), modulus_bits=16, max_weight=0, clip=10.0)
    start = model(variance=np.ones(200, np.float32), weight=np.zeros(200, np.float32))
    for rounds in (8, 1):
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds)
    variance, weight = strategy._clips.values
    assert variance / weight == pytest.approx(5 / 0.001, rel=0.2)
    np.testing.assert_allclose(values(result.arrays)["weight"], 0.001, rtol=0.02)
    np.testing.assert_allclose(values(result.arrays)["variance"], 6, rtol=0.02)
