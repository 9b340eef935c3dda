"""The clip of the next round follows the last mean, and grows when values were clipped."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from engines.in_process import InProcessGrid, model, training_app, values
from sparsesecagg.engines.flower.clip import GROWTH, HEADROOM, SLOWEST_FALL, Clip
from sparsesecagg.flower import SecAgg


@given(value=st.floats(1e-6, 1e6), largest=st.floats(1e-9, 1e9), clipped=st.sampled_from([None, 0, 7]))
def test_one_round_moves_the_clip_within_bounds(value: float, largest: float, clipped: int | None) -> None:
    clip = Clip(value)
    clip.learn(np.array([largest, -largest / 2]), clipped)
    assert value / SLOWEST_FALL * 0.999 <= clip.value <= value * GROWTH * 1.001
    if clipped:
        assert clip.value >= value


def test_quiet_rounds_bring_the_clip_to_a_multiple_of_the_mean() -> None:
    clip = Clip(100.0)
    for _ in range(10):
        clip.learn(np.array([0.01, -0.02]), 0)
    assert clip.value == pytest.approx(HEADROOM * 0.02)


@pytest.mark.parametrize("mean", [[0.0, 0.0], [np.nan], [np.inf], []], ids=str)
def test_a_mean_that_says_nothing_changes_nothing(mean: list[float]) -> None:
    clip = Clip(0.5)
    clip.learn(np.array(mean), 0)
    assert clip.value == 0.5


def test_a_fixed_clip_stays() -> None:
    clip = Clip(0.5, adaptive=False)
    clip.learn(np.array([9.0]), 3)
    assert clip.value == 0.5


def test_clipped_values_are_counted_and_after_a_few_rounds_none_are() -> None:
    """Updates of 1.0 against a first clip of 0.1: the rounds say so, the clip grows, the mean becomes right."""
    grid = InProcessGrid(training_app(lambda p, a, r: {"w": a["w"] + np.float32(1)}), 4)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), clip=0.1, max_weight=0)
    result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(30, np.float32)), num_rounds=4)
    assert [record.clipped for record in strategy.history] == [120, 120, 0, 0]
    assert [round(record.clip, 6) for record in strategy.history][:3] == [0.1, 0.4, 1.6]
    np.testing.assert_allclose(values(result.arrays)["w"], 0.1 + 0.4 + 1 + 1, rtol=1e-5)


def test_short_words_end_as_close_as_long_ones_when_the_clip_adapts() -> None:
    """Updates halve from round to round; at the first clip twelve bits could not tell the last ones from rounding."""

    def converge(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        return {"w": arrays["w"] + (np.float32(1) - arrays["w"]) * np.float32(0.5)}

    def error(adaptive: bool) -> float:
        grid = InProcessGrid(training_app(converge), 6)
        strategy = SecAgg(
            FedAvg(fraction_evaluate=0.0), modulus_bits=12, max_weight=0, clip=2.0, adaptive_clip=adaptive
        )
        result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(300, np.float32)), num_rounds=9)
        return float(np.abs(values(result.arrays)["w"] - (1 - 2**-9)).max())

    assert error(adaptive=True) < error(adaptive=False) / 4
