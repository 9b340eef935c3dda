"""The gain: what a fixed one does, where an adaptive one goes, and that a restarted server continues with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsesecagg.downlink.gain import DEFAULT_ALPHA, Gain
from sparsesecagg.errors import InvalidInput

DIM, LENGTH = 200, 10
RESULTS = Path(__file__).parents[2] / "results" / "slices.json"


def covered(number: int, length: int = LENGTH) -> NDArray[np.bool_]:
    """Return one coordinate of each block, another one in each round."""
    chosen: NDArray[np.bool_] = np.arange(DIM) % length == number % length
    return chosen


def descend(gain: Gain, alone: float, rounds: int) -> tuple[float, list[float]]:
    """Descend a quadratic; return the distance that is left and the gains.

    A round's update is −(alone · x + (1 − alone) · the mean of x). With 1 every coordinate is right by itself, and any
    gain above 2 diverges; with 0 all of them move together, and only 1/κ makes good speed.
    """
    x, found = np.ones(DIM, np.float32), []
    for number in range(rounds):
        now = covered(number)
        along = np.full(DIM, x.mean(), np.float32)
        mean = -(alone * x + (1 - alone) * along)
        x += gain.step(mean.astype(np.float32), now)
        found.append(gain.value)
    return float(np.abs(x).max()), found


def test_a_fixed_gain_multiplies_the_mean_where_it_is_covered() -> None:
    gain, mean = Gain(0.1, 4), np.ones(DIM, np.float32)
    step = gain.step(mean, covered(3))
    assert step.dtype == np.float32
    assert (step == np.where(covered(3), 4, 0)).all()
    assert gain.value == 4


def test_what_is_not_covered_is_ignored() -> None:
    mean = np.where(covered(0), 1, np.nan).astype(np.float32)
    assert np.isfinite(Gain(0.1).step(mean, covered(0))).all()


@pytest.mark.parametrize("gain", [0.9, 0, -1, 10.1, float("nan"), float("inf")])
def test_a_gain_lies_between_one_and_one_over_the_coverage(gain: float) -> None:
    with pytest.raises(InvalidInput, match=r"gain must be in \[1, 10\]") as caught:
        Gain(0.1, gain)
    assert caught.value.option == "gain"


@pytest.mark.parametrize("coverage", [0, -0.1, 1.1, float("nan")])
def test_a_coverage_is_a_part(coverage: float) -> None:
    with pytest.raises(InvalidInput, match="coverage"):
        Gain(coverage)


@pytest.mark.parametrize("length", range(2, 60))
def test_one_over_the_coverage_is_allowed_however_it_was_computed(length: int) -> None:
    assert Gain(1 / length, length).value == length
    assert Gain(3 / (3 * length), 1 / (3 / (3 * length))).value == pytest.approx(length)


def test_the_gain_is_one_where_everything_is_covered() -> None:
    gain, everything = Gain(1.0), np.ones(DIM, np.bool_)
    for sign in (1, -1, 1, 1):
        mean = np.full(DIM, sign, np.float32)
        assert (gain.step(mean, everything) == mean).all()
    assert gain.value == 1


@pytest.mark.parametrize(("coverage", "first"), [(0.1, 5), (0.15, 5), (0.2, 5), (0.5, 2), (1, 1), (0.02, 25)])
def test_adapting_starts_at_the_largest_gain_up_to_five_and_at_half_of_it_beyond(coverage: float, first: float) -> None:
    assert Gain(coverage).value == pytest.approx(first)


def test_it_grows_to_the_largest_gain_while_updates_keep_their_direction() -> None:
    _, gains = descend(Gain(0.1), alone=0.01, rounds=30)
    assert gains[-1] == 10


def test_it_shrinks_where_the_largest_gain_diverges() -> None:
    """Every coordinate is right by itself: 10 × overshoots nine times, and the adaptive gain finds that out."""
    bold, _ = descend(Gain(0.1, 10), alone=1.0, rounds=100)
    left, gains = descend(Gain(0.1), alone=1.0, rounds=100)
    assert bold > 1e6
    assert left < 0.1
    assert gains[-1] < 2


def test_it_shrinks_on_noise_alone() -> None:
    gain, random = Gain(0.1), np.random.default_rng(1)
    for number in range(120):
        gain.step(random.standard_normal(DIM).astype(np.float32), covered(number))
    assert gain.value < 3


def test_means_that_are_zero_change_nothing() -> None:
    gain, zero = Gain(0.1), np.zeros(DIM, np.float32)
    for number in range(25):
        assert not gain.step(zero, covered(number)).any()
    assert gain.value == 5
    assert not gain.step(zero, np.zeros(DIM, np.bool_)).any()


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40), st.sampled_from([0.02, 0.1, 0.3, 0.5]))
def test_it_never_leaves_its_bounds(sizes: list[float], coverage: float) -> None:
    gain = Gain(coverage)
    for number, size in enumerate(sizes):
        gain.step(np.full(DIM, size, np.float32), covered(number, 3))
        assert 1 <= gain.value <= 1 / coverage


@pytest.mark.parametrize("rounds", [0, 1, 5, 25])
def test_a_restored_gain_continues_as_if_nothing_had_happened(rounds: int) -> None:
    first, random = Gain(0.1), np.random.default_rng(2)
    means = random.standard_normal((rounds + 20, DIM)).astype(np.float32)
    for number in range(rounds):
        first.step(means[number], covered(number))
    second = Gain(0.1)
    second.restore(first.save())
    for number in range(rounds, rounds + 20):
        assert (first.step(means[number], covered(number)) == second.step(means[number], covered(number))).all()
    assert first.save() == second.save()


@pytest.mark.parametrize("data", [b"", b"nonsense", Gain(0.1).save()[:-2], Gain(0.1).save() + b"0"])
def test_bytes_that_were_not_saved_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a state"):
        Gain(0.1).restore(data)


def test_the_state_of_other_settings_is_refused() -> None:
    with pytest.raises(InvalidInput, match="other settings"):
        Gain(0.5).restore(Gain(0.1).save())
    with pytest.raises(InvalidInput, match="other settings"):
        Gain(0.1, 3).restore(Gain(0.1).save())


def test_the_default_alpha_is_the_one_that_was_measured() -> None:
    result = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert result["complete"]
    assert result["default_alpha"] == DEFAULT_ALPHA
