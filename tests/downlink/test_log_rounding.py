"""The server's rounding: bit for bit what the twin computes, and nothing lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference import steps as twin
from sparsesecagg.downlink import STEP_BITS, Replica, StepLog, model_digest
from sparsesecagg.errors import InvalidInput
from strategies import models

widths = st.sampled_from(STEP_BITS)


def kept_error(log: StepLog) -> NDArray[np.float32]:
    """Return what rounding has left for the next step: the end of a saved log."""
    return np.frombuffer(log.save()[-log.model.nbytes :], "<f4")


@settings(max_examples=40)
@given(models(), widths, st.integers(0, 2**32), st.integers(-30, 3))
def test_the_twin_rebuilds_every_model_bit_for_bit(model: NDArray[np.float32], bits: int, seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    log = StepLog(model, bits)
    held = [float(value) for value in log.model]
    scale = max(float(np.abs(model).max()), 2.0**-90) * 2.0**size
    for number in range(1, 5):
        update = (rng.normal(0, scale, len(model)) * (rng.random(len(model)) < 0.7)).astype(np.float32)
        step = log.step(log.model + update)
        assert step.digest_before == twin.digest(held)[:8]
        held = twin.stepped(held, step.encode())
        assert twin.digest(held) == step.digest_after == log.digest == model_digest(log.model)
        assert log.sequence == step.after == number


def test_many_rounds_stay_bit_for_bit() -> None:
    """Sparse rounds, dense rounds, failed rounds, growing and shrinking steps; every width takes its turn."""
    rng = np.random.default_rng(0)
    for bits in STEP_BITS:
        log = StepLog(rng.normal(0, 0.1, 1300).astype(np.float32), bits)
        held = [float(value) for value in log.model]
        for number in range(60):
            update = rng.normal(0, 0.1 * 0.9**number, 1300).astype(np.float32)
            update[: 512 * (number % 4)] = 0
            held = twin.stepped(held, log.step(log.model + update).encode())
            assert np.array_equal(np.array(held, np.float32).view(np.uint32), log.model.view(np.uint32))


@given(models(), widths, st.integers(0, 2**32))
def test_no_value_is_ever_subnormal(model: NDArray[np.float32], bits: int, seed: int) -> None:
    """So a machine that flushes subnormals to zero holds the same model."""
    rng = np.random.default_rng(seed)
    log = StepLog(model, bits)
    for _ in range(3):
        target = log.model * rng.choice(np.array([-1, 0, 0.5, 1], np.float32), len(model))
        log.step(target + rng.normal(0, 2.0**-110, len(model)).astype(np.float32))
        smallest = np.abs(log.model[log.model != 0]).min(initial=1)
        assert smallest >= 2.0**-126


@settings(max_examples=30)
@given(widths, st.integers(0, 2**32))
def test_model_and_kept_error_follow_the_targets(bits: int, seed: int) -> None:
    """Nothing is lost: the updates add up, and the error stays a fraction or a few of one update."""
    rng = np.random.default_rng(seed)
    start = rng.normal(0, 0.1, 2000).astype(np.float32)
    log = StepLog(start, bits)
    wanted = start.astype(np.float64)
    for _ in range(40):
        update = rng.normal(0, 0.01, 2000).astype(np.float32)
        target = log.model + update
        wanted += target.astype(np.float64) - log.model
        log.step(target)
    assert np.abs(log.model + kept_error(log).astype(np.float64) - wanted).max() < 1e-5
    distance = np.sqrt(np.mean((log.model - wanted) ** 2))
    assert distance < {8: 0.0005, 4: 0.003, 2: 0.03}[bits]
    assert np.abs(log.model - wanted).max() < {8: 0.001, 4: 0.05, 2: 0.3}[bits]


@pytest.mark.parametrize("bits", STEP_BITS)
def test_a_target_that_stands_still_is_approached(bits: int) -> None:
    """A caller that goes on from its own model and not from the rounded one is not led astray."""
    rng = np.random.default_rng(bits)
    target = rng.normal(0, 0.1, 1000).astype(np.float32)
    log = StepLog(np.zeros(1000, np.float32), bits)
    distances = []
    for _ in range(80):
        log.step(target)
        distances.append(float(np.abs(log.model - target).max()))
    assert distances[-1] < {8: 1e-4, 4: 1e-4, 2: 0.02}[bits]
    assert max(distances) < 0.5


@pytest.mark.parametrize("bits", STEP_BITS)
def test_blocks_that_nobody_touched_stay_and_their_error_waits(bits: int) -> None:
    rng = np.random.default_rng(1)
    log = StepLog(np.zeros(1024, np.float32), bits)
    log.step(rng.normal(0, 1, 1024).astype(np.float32))
    model, error = log.model, kept_error(log)
    assert error[:512].any()
    target = model.copy()
    target[512:] += rng.normal(0, 1, 512).astype(np.float32)
    step = log.step(target)
    assert step.exponents[0] == 0 < step.exponents[1]
    assert np.array_equal(log.model[:512], model[:512])
    assert np.array_equal(kept_error(log)[:512], error[:512])
    empty = log.step(log.model)
    assert empty.levels == b""
    assert empty.digest_after[:8] == empty.digest_before[:8] == log.digest[:8]


def test_coordinates_that_should_not_move_do_not() -> None:
    """0 is a level of every width."""
    for bits in STEP_BITS:
        log = StepLog(np.ones(512, np.float32), bits)
        target = log.model.copy()
        target[::2] += 0.1
        log.step(target)
        assert (log.model[1::2] == 1).all()
        assert (log.model[::2] > 1).all()


def test_the_model_can_not_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        StepLog(np.ones(5, np.float32)).model[0] = 2


def test_the_callers_arrays_stay_the_callers() -> None:
    model, target = np.ones(600, np.float32), np.full(600, 2, np.float32)
    log = StepLog(model)
    log.step(target)
    assert (model == 1).all()
    assert (target == 2).all()
    model[:], target[:] = 7, 7
    assert not (log.model == 7).any()


def test_tiny_values_of_the_first_model_become_zero() -> None:
    log = StepLog(np.array([2.0**-104, -(2.0**-130), 2.0**-103, -0.5], np.float32))
    assert log.model.tolist() == [0, 0, 2.0**-103, -0.5]


def test_negative_zero_is_a_value_like_others() -> None:
    """A clean model keeps its bits, so a node that begins with the same one agrees."""
    model = np.tile(np.array([-0.0, 0.0, 1.0], np.float32), 200)
    log, replica = StepLog(model), Replica(model)
    assert log.digest == replica.digest == twin.digest(model.tolist())
    for target in (model, np.tile(np.array([0, 0, 2], np.float32), 200)):
        log.advance(target)
        replica.catch_up(log.for_node(replica.sequence))
        assert log.digest == replica.digest == twin.digest(target.tolist())


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
        StepLog(bad)
    log = StepLog(np.ones(4, np.float32))
    with pytest.raises(InvalidInput, match=r"^target must be (a flat float32 vector|finite)"):
        log.step(bad)
    assert log.sequence == 0


def test_a_target_of_another_length_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="target must have 4 values, as the model has, got 5"):
        StepLog(np.ones(4, np.float32)).step(np.ones(5, np.float32))


def test_numbers_of_models_only_grow() -> None:
    log = StepLog(np.ones(4, np.float32), sequence=7)
    for number in (7, 3, -1, 1 << 64):
        with pytest.raises(InvalidInput, match="sequence must be"):
            log.step(np.ones(4, np.float32), number)
    assert log.step(np.ones(4, np.float32), 12).before == 7
    assert log.sequence == 12
    with pytest.raises(InvalidInput, match="sequence must be"):
        StepLog(np.ones(4, np.float32), sequence=-1)


def test_a_rounded_model_beyond_the_range_is_an_error_and_changes_nothing() -> None:
    """The target is within the range, and the nearest level of one coordinate is just beyond."""
    model = np.zeros(512, np.float32)
    model[0] = 0.99 * 2.0**100
    log = StepLog(model, bits=2)
    target = np.full(512, 2.0**94, np.float32)
    target[0] = 2.0**100
    with pytest.raises(InvalidInput, match="target is so far from the model"):
        log.step(target)
    assert np.array_equal(log.model, model)
    assert log.sequence == 0
    assert not kept_error(log).any()
