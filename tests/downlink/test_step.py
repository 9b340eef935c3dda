"""A step on the wire: one body for each step, under a Huffman code, and nothing else is accepted."""

from __future__ import annotations

import zlib
from contextlib import suppress

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
def test_a_dense_step_has_its_bits_and_a_byte_per_block_and_travels_in_less(bits: int, each: float) -> None:
    step = step_of(512_000, bits)
    body = 1000 + each * 512_000
    assert len(step.exponents + step.levels) == body
    assert step.size < HEADER + 0.9 * body


def test_few_changes_among_many_coordinates_take_few_bytes() -> None:
    """A tenth of the coordinates, scattered: a fourth of the bits that all of them would take."""
    assert step_of(512_000, changed=slice(None, None, 10)).size < HEADER + 512_000 / 8


def test_a_block_that_stays_costs_less_than_a_byte() -> None:
    dense, sparse = step_of(51_200).size, step_of(512_000, changed=slice(51_200, 102_400)).size
    assert sparse < dense + 900


def test_noise_is_hardly_longer_under_the_code() -> None:
    levels = np.random.default_rng(0).integers(-127, 128, 51_200).astype(np.int8).tobytes()
    step = ModelStep(8, 51_200, 0, 1, bytes(8), bytes(32), b"\x7f" * 100, levels)
    assert step.size < HEADER + 51_300 + 50


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 511, 513, 515])
@pytest.mark.parametrize("bits", STEP_BITS)
def test_a_short_last_block_has_only_what_it_needs(dim: int, bits: int) -> None:
    assert len(body_of(step_of(dim, bits).encode())) == -(-dim // BLOCK) + -(-dim * bits // 8)


@given(st.integers(0, 2000), widths)
def test_truncated_steps_are_rejected(kept: int, bits: int) -> None:
    data = step_of(1300, bits).encode()
    with pytest.raises(MalformedMessage):
        ModelStep.decode(data[: min(kept, len(data) - 1)])


@pytest.mark.parametrize("bits", STEP_BITS)
def test_trailing_bytes_are_rejected(bits: int) -> None:
    data = step_of(1300, bits).encode()
    with pytest.raises(MalformedMessage, match="goes on behind its end"):
        ModelStep.decode(data + b"\x01")
    with pytest.raises(MalformedMessage, match="the levels of this step take"):
        ModelStep.decode(packed(data, body_of(data) + b"\x01"))


@given(st.data(), widths)
def test_a_changed_body_is_rejected_or_is_that_of_another_step(data: st.DataObject, bits: int) -> None:
    encoded = step_of(530, bits).encode()
    changed = encoded[:HEADER] + data.draw(mutated(body_of(encoded)))
    try:
        step = ModelStep.decode(packed(changed, changed[HEADER:]))
    except MalformedMessage:
        return
    assert step.exponents + step.levels == changed[HEADER:]


@given(st.data(), widths)
def test_changed_bytes_are_rejected_or_are_a_step(data: st.DataObject, bits: int) -> None:
    with suppress(MalformedMessage):
        step = ModelStep.decode(data.draw(mutated(step_of(530, bits).encode())))
        assert ModelStep.decode(step.encode()) == step


@given(st.binary(max_size=200))
def test_random_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        ModelStep.decode(data)


def body_of(data: bytes) -> bytes:
    """Return exponents and levels of an encoded step."""
    return zlib.decompress(data[HEADER:], -15)


def packed(data: bytes, body: bytes) -> bytes:
    """Return an encoded step with another body."""
    coder = zlib.compressobj(wbits=-15)
    return data[:HEADER] + coder.compress(body) + coder.flush()


def with_byte(data: bytes, place: int, value: int) -> bytes:
    changed = bytearray(data)
    changed[place] = value
    return bytes(changed)


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (0, 1, "steps have version 2, got 1"),
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
    changed = with_byte(data[:HEADER] + body_of(data), place, value)
    with pytest.raises(MalformedMessage, match=problem):
        ModelStep.decode(packed(changed, changed[HEADER:]))


def test_what_unpacks_to_more_than_a_huffman_code_can_hold_is_rejected() -> None:
    """A megabyte of zeros takes a kilobyte with matches: no memory for it."""
    data = packed(step_of(5).encode(), bytes(1 << 20))
    with pytest.raises(MalformedMessage, match="unpacks to more"):
        ModelStep.decode(data)


def test_a_body_that_is_not_packed_is_rejected() -> None:
    data = step_of(5).encode()
    with pytest.raises(MalformedMessage, match="not packed"):
        ModelStep.decode(data[:HEADER] + b"\xff" * 20)


def test_a_step_for_no_coordinates_is_rejected() -> None:
    data = bytearray(step_of(5).encode())
    data[2:10] = bytes(8)
    with pytest.raises(MalformedMessage, match="0 coordinates do not fit"):
        ModelStep.decode(bytes(data))


def test_a_block_of_zeros_must_be_marked_as_empty() -> None:
    data = step_of(1024, 8).encode()
    body = body_of(data)
    with pytest.raises(MalformedMessage, match="a block of zeros is not marked as empty"):
        ModelStep.decode(packed(data, body[:2] + bytes(512) + body[2 + 512 :]))


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
