"""A step on the wire: one encoding, and nothing else is accepted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference.steps import HEADER
from sparsesecagg.downlink import BLOCK, STEP_BITS, ModelStep, StepLog
from sparsesecagg.downlink.step import add_step
from sparsesecagg.errors import MalformedMessage, WrongStep
from strategies import models, mutated

widths = st.sampled_from(STEP_BITS)


def step_of(dim: int, bits: int = 4, seed: int = 0, changed: slice = slice(None)) -> ModelStep:
    """Return the first step of a model of zeros."""
    target = np.zeros(dim, np.float32)
    target[changed] = np.random.default_rng(seed).normal(0, 0.01, dim).astype(np.float32)[changed]
    return StepLog(np.zeros(dim, np.float32), bits).step(target)


@given(models(), widths, st.integers(0, 2**63), st.integers(1, 1000))
def test_a_step_survives_the_wire(target: NDArray[np.float32], bits: int, before: int, ahead: int) -> None:
    step = StepLog(np.zeros_like(target), bits, before).step(target, before + ahead)
    data = step.encode()
    assert ModelStep.decode(data) == ModelStep.decode(memoryview(data)) == step
    assert len(data) == step.size
    assert (step.before, step.after, step.dim, step.bits) == (before, before + ahead, len(target), bits)


@pytest.mark.parametrize(("bits", "each"), [(2, 0.25), (4, 0.5), (8, 1)])
def test_a_dense_step_takes_its_bits_and_a_byte_per_block(bits: int, each: float) -> None:
    assert step_of(512_000, bits).size == HEADER + 1000 + each * 512_000


def test_blocks_that_stay_cost_one_byte_each() -> None:
    assert step_of(512_000, changed=slice(51_200, 102_400)).size == HEADER + 1000 + 51_200 // 2


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 511, 513, 515])
@pytest.mark.parametrize("bits", STEP_BITS)
def test_a_short_last_block_takes_only_what_it_needs(dim: int, bits: int) -> None:
    assert step_of(dim, bits).size == HEADER + -(-dim // BLOCK) + -(-dim * bits // 8)


@given(st.integers(0, 2000), widths)
def test_truncated_steps_are_rejected(kept: int, bits: int) -> None:
    data = step_of(1300, bits).encode()
    with pytest.raises(MalformedMessage):
        ModelStep.decode(data[: min(kept, len(data) - 1)])


@pytest.mark.parametrize("bits", STEP_BITS)
def test_trailing_bytes_are_rejected(bits: int) -> None:
    with pytest.raises(MalformedMessage, match="the levels of this step take"):
        ModelStep.decode(step_of(1300, bits).encode() + b"\x01")


@given(st.data(), widths)
def test_changed_bytes_are_rejected_or_are_the_encoding_of_another_step(data: st.DataObject, bits: int) -> None:
    changed = data.draw(mutated(step_of(530, bits).encode()))
    try:
        step = ModelStep.decode(changed)
    except MalformedMessage:
        return
    assert step.encode() == changed


@given(st.binary(max_size=200))
def test_random_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        ModelStep.decode(data)


def with_byte(data: bytes, place: int, value: int) -> bytes:
    changed = bytearray(data)
    changed[place] = value
    return bytes(changed)


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (0, 2, "steps have version 1, got 2"),
        (1, 3, "2, 4 or 8 bits per coordinate, got 3"),
        (18, 0, "a later model, got 0 to 0"),
        (9, 1, "do not fit a step"),
        (HEADER, 228, "an exponent is 228, the largest is 227"),
        (HEADER, 0, "take 9 bytes, not 265"),
        (HEADER + 2, 0x08, "a code is not a level"),
        (-1, 0x10, "padding"),
    ],
)
def test_each_check_names_what_is_wrong(place: int, value: int, problem: str) -> None:
    """17 coordinates in the last block: the last byte holds one level and four bits of padding."""
    data = step_of(529).encode()
    with pytest.raises(MalformedMessage, match=problem):
        ModelStep.decode(with_byte(data, place, value))


def test_a_step_for_no_coordinates_is_rejected() -> None:
    data = bytearray(step_of(5).encode())
    data[2:10] = bytes(8)
    with pytest.raises(MalformedMessage, match="0 coordinates do not fit"):
        ModelStep.decode(bytes(data))


def test_a_block_of_zeros_must_be_marked_as_empty() -> None:
    data = step_of(1024, 8).encode()
    zeros = data[: HEADER + 2] + bytes(512) + data[HEADER + 2 + 512 :]
    with pytest.raises(MalformedMessage, match="a block of zeros is not marked as empty"):
        ModelStep.decode(zeros)


def test_a_dimension_that_nobody_sent_takes_no_memory() -> None:
    data = bytearray(step_of(5).encode())
    data[2:10] = (1 << 63).to_bytes(8, "little")
    with pytest.raises(MalformedMessage, match="do not fit"):
        ModelStep.decode(bytes(data))


def test_a_step_is_only_added_to_a_model_of_its_length() -> None:
    with pytest.raises(WrongStep, match="for a model of 5 coordinates, and this one has 6"):
        add_step(np.zeros(6, np.float32), step_of(5))


def test_a_step_never_leads_beyond_the_range() -> None:
    top = StepLog(np.zeros(5, np.float32)).step(np.full(5, 2.0**100, np.float32))
    with pytest.raises(WrongStep, match="beyond"):
        add_step(np.full(5, 2.0**100, np.float32), top)
