"""The server's rounding: bit for bit what the twin computes, and nothing lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference import steps as twin
from sparsesecagg.downlink import STEP_BITS, Replica, StepEncoder, model_digest
from sparsesecagg.errors import InvalidInput
from strategies import models

widths = st.sampled_from(STEP_BITS)


@settings(max_examples=40)
@given(models(), widths, st.integers(0, 2**32), st.integers(-30, 3))
def test_the_twin_rebuilds_every_model_bit_for_bit(model: NDArray[np.float32], bits: int, seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    encoder = StepEncoder(model, bits)
    held = [float(value) for value in encoder.model]
    scale = max(float(np.abs(model).max()), 2.0**-90) * 2.0**size
    for number in range(1, 5):
        update = (rng.normal(0, scale, len(model)) * (rng.random(len(model)) < 0.7)).astype(np.float32)
        step = encoder.encode(encoder.model + update)
        assert step.digest_before == twin.digest(held)[:8]
        held = twin.stepped(held, step.encode())
        assert twin.digest(held) == step.digest_after == encoder.digest == model_digest(encoder.model)
        assert encoder.sequence == step.after == number


def test_many_rounds_stay_bit_for_bit() -> None:
    """Sparse rounds, dense rounds, failed rounds, growing and shrinking steps; every width takes its turn."""
    rng = np.random.default_rng(0)
    for bits in STEP_BITS:
        encoder = StepEncoder(rng.normal(0, 0.1, 1300).astype(np.float32), bits)
        held = [float(value) for value in encoder.model]
        for number in range(60):
            update = rng.normal(0, 0.1 * 0.9**number, 1300).astype(np.float32)
            update[: 512 * (number % 4)] = 0
            held = twin.stepped(held, encoder.encode(encoder.model + update).encode())
            assert np.array_equal(np.array(held, np.float32).view(np.uint32), encoder.model.view(np.uint32))


@given(models(), widths, st.integers(0, 2**32))
def test_no_value_is_ever_subnormal(model: NDArray[np.float32], bits: int, seed: int) -> None:
    """So a machine that flushes subnormals to zero holds the same model."""
    rng = np.random.default_rng(seed)
    encoder = StepEncoder(model, bits)
    for _ in range(3):
        target = encoder.model * rng.choice(np.array([-1, 0, 0.5, 1], np.float32), len(model))
        encoder.encode(target + rng.normal(0, 2.0**-110, len(model)).astype(np.float32))
        smallest = np.abs(encoder.model[encoder.model != 0]).min(initial=1)
        assert smallest >= 2.0**-126


@settings(max_examples=30)
@given(widths, st.integers(0, 2**32))
def test_model_and_kept_error_follow_the_targets(bits: int, seed: int) -> None:
    """Nothing is lost: the updates add up, and the error stays a fraction or a few of one update."""
    rng = np.random.default_rng(seed)
    start = rng.normal(0, 0.1, 2000).astype(np.float32)
    encoder = StepEncoder(start, bits)
    wanted = start.astype(np.float64)
    for _ in range(40):
        update = rng.normal(0, 0.01, 2000).astype(np.float32)
        target = encoder.model + update
        wanted += target.astype(np.float64) - encoder.model
        encoder.encode(target)
    assert np.abs(encoder.model + encoder.error.astype(np.float64) - wanted).max() < 1e-5
    distance = np.sqrt(np.mean((encoder.model - wanted) ** 2))
    assert distance < {8: 0.0005, 4: 0.003, 2: 0.03}[bits]
    assert np.abs(encoder.model - wanted).max() < {8: 0.001, 4: 0.05, 2: 0.3}[bits]


@pytest.mark.parametrize("bits", STEP_BITS)
def test_a_target_that_stands_still_is_approached(bits: int) -> None:
    """A caller that goes on from its own model and not from the rounded one is not led astray."""
    rng = np.random.default_rng(bits)
    target = rng.normal(0, 0.1, 1000).astype(np.float32)
    encoder = StepEncoder(np.zeros(1000, np.float32), bits)
    distances = []
    for _ in range(80):
        encoder.encode(target)
        distances.append(float(np.abs(encoder.model - target).max()))
    assert distances[-1] < {8: 1e-4, 4: 1e-4, 2: 0.02}[bits]
    assert max(distances) < 0.5


@pytest.mark.parametrize("bits", STEP_BITS)
def test_blocks_that_nobody_touched_stay_and_their_error_waits(bits: int) -> None:
    rng = np.random.default_rng(1)
    encoder = StepEncoder(np.zeros(1024, np.float32), bits)
    encoder.encode(rng.normal(0, 1, 1024).astype(np.float32))
    model, error = encoder.model, encoder.error
    assert error[:512].any()
    target = model.copy()
    target[512:] += rng.normal(0, 1, 512).astype(np.float32)
    step = encoder.encode(target)
    assert step.exponents[0] == 0 < step.exponents[1]
    assert np.array_equal(encoder.model[:512], model[:512])
    assert np.array_equal(encoder.error[:512], error[:512])
    empty = encoder.encode(encoder.model)
    assert empty.levels == b""
    assert empty.digest_after[:8] == empty.digest_before[:8] == encoder.digest[:8]


def test_coordinates_that_should_not_move_do_not() -> None:
    """0 is a level of every width."""
    for bits in STEP_BITS:
        encoder = StepEncoder(np.ones(512, np.float32), bits)
        target = encoder.model.copy()
        target[::2] += 0.1
        encoder.encode(target)
        assert (encoder.model[1::2] == 1).all()
        assert (encoder.model[::2] > 1).all()


def test_the_model_and_the_error_can_not_be_written_to() -> None:
    encoder = StepEncoder(np.ones(5, np.float32))
    for array in (encoder.model, encoder.error):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2


def test_the_callers_arrays_stay_the_callers() -> None:
    model, target = np.ones(600, np.float32), np.full(600, 2, np.float32)
    encoder = StepEncoder(model)
    encoder.encode(target)
    assert (model == 1).all()
    assert (target == 2).all()
    model[:], target[:] = 7, 7
    assert not (encoder.model == 7).any()


def test_tiny_values_of_the_first_model_become_zero() -> None:
    encoder = StepEncoder(np.array([2.0**-104, -(2.0**-130), 2.0**-103, -0.5], np.float32))
    assert encoder.model.tolist() == [0, 0, 2.0**-103, -0.5]


def test_negative_zero_is_a_value_like_others() -> None:
    """A clean model keeps its bits, so a node that begins with the same one agrees."""
    model = np.array([-0.0, 0.0, 1.0], np.float32)
    encoder, replica = StepEncoder(model), Replica(model)
    assert encoder.digest == replica.digest == twin.digest(model.tolist())
    replica.apply(encoder.encode(model))
    assert encoder.digest == replica.digest == twin.digest(model.tolist())
    replica.apply(encoder.encode(np.array([0, 0, 2], np.float32)))
    assert encoder.digest == replica.digest == twin.digest([0.0, 0.0, 2.0])


@pytest.mark.parametrize(
    "bad",
    [
        np.ones(4, np.float64),
        np.ones((2, 2), np.float32),
        np.ones(0, np.float32),
        [1.0, 2.0],
        np.array([1, np.nan, 1, 1], np.float32),
        np.array([1, np.inf, 1, 1], np.float32),
        np.array([1, -(2.0**101), 1, 1], np.float32),
    ],
    ids=["float64", "table", "empty", "list", "nan", "infinite", "enormous"],
)
def test_what_is_no_model_is_rejected_by_name(bad: NDArray[np.float32]) -> None:
    with pytest.raises(InvalidInput, match=r"^model must be (a flat float32 vector|finite)"):
        StepEncoder(bad)
    encoder = StepEncoder(np.ones(4, np.float32))
    with pytest.raises(InvalidInput, match=r"^target must be (a flat float32 vector|finite)"):
        encoder.encode(bad)
    assert encoder.sequence == 0


def test_a_target_of_another_length_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="target must have 4 values, as the model has, got 5"):
        StepEncoder(np.ones(4, np.float32)).encode(np.ones(5, np.float32))


def test_numbers_of_models_only_grow() -> None:
    encoder = StepEncoder(np.ones(4, np.float32), sequence=7)
    for number in (7, 3, -1, 1 << 64):
        with pytest.raises(InvalidInput, match="sequence must be"):
            encoder.encode(np.ones(4, np.float32), number)
    assert encoder.encode(np.ones(4, np.float32), 12).before == 7
    assert encoder.sequence == 12
    with pytest.raises(InvalidInput, match="sequence must be"):
        StepEncoder(np.ones(4, np.float32), sequence=-1)


def test_a_rounded_model_beyond_the_range_is_an_error_and_changes_nothing() -> None:
    """The target is within the range, and the nearest level of one coordinate is just beyond."""
    model = np.zeros(512, np.float32)
    model[0] = 0.99 * 2.0**100
    encoder = StepEncoder(model, bits=2)
    target = np.full(512, 2.0**94, np.float32)
    target[0] = 2.0**100
    with pytest.raises(InvalidInput, match="target is so far from the model"):
        encoder.encode(target)
    assert np.array_equal(encoder.model, model)
    assert encoder.sequence == 0
    assert not encoder.error.any()
