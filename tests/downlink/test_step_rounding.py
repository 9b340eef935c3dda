"""Rounding to levels and exponents, and their packing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference.steps import level
from sparsesecagg.downlink import BLOCK, STEP_BITS, ModelStep, StepLog
from sparsesecagg.downlink.step import (
    EXPONENT_BIAS,
    LARGEST_EXPONENT,
    largest_level,
    pack_levels,
    round_blocks,
    scales_of,
    unpack_levels,
)
from sparsesecagg.errors import InvalidInput, MalformedMessage

widths = st.sampled_from(STEP_BITS)


def drawn_blocks(seed: int, size: float, heavy: float) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    values = rng.normal(0, size, (3, BLOCK)) * np.exp(rng.normal(0, heavy, (3, BLOCK)))
    return values.astype(np.float32)


def error_of(block: NDArray[np.float32], exponent: int, bits: int) -> float:
    """Return the squared error of rounding with this exponent, in double precision."""
    scaled = block.astype(np.float64) * 2.0 ** (EXPONENT_BIAS - exponent)
    levels = np.clip(np.rint(scaled), -largest_level(bits), largest_level(bits))
    return float(((scaled - levels) ** 2).sum() * 4.0 ** (exponent - EXPONENT_BIAS))


@given(widths, st.integers(0, 2**32))
def test_levels_are_packed_lowest_bits_first(bits: int, seed: int) -> None:
    largest = largest_level(bits)
    levels = np.random.default_rng(seed).integers(-largest, largest + 1, (2, BLOCK)).astype(np.int8)
    packed = pack_levels(levels, bits)
    codes = int.from_bytes(packed.tobytes(), "little")
    assert [
        level(codes >> bits * place & (1 << bits) - 1, bits) for place in range(2 * BLOCK)
    ] == levels.flatten().tolist()
    assert len(packed) == 2 * BLOCK * bits // 8
    assert unpack_levels(packed, bits).tolist() == levels.flatten().tolist()


@pytest.mark.parametrize("bits", STEP_BITS)
def test_one_code_of_each_width_is_not_a_level(bits: int) -> None:
    """Levels are symmetric, two's complement is not."""
    step = StepLog(np.zeros(24 // bits, np.float32), bits).step(np.ones(24 // bits, np.float32))
    code = 1 << (bits - 1)
    for place in range(0, 8, bits):
        with pytest.raises(MalformedMessage, match="a code is not a level"):
            ModelStep.decode(replace(step, levels=bytes([0, code << place, 0])).encode())
        ModelStep.decode(replace(step, levels=bytes([0, (code - 1) << place, 0])).encode())


@given(widths, st.integers(0, 2**32), st.sampled_from([1e-30, 1e-3, 1.0, 1e20]), st.floats(0, 3))
def test_every_value_goes_to_the_nearest_level_that_there_is(bits: int, seed: int, size: float, heavy: float) -> None:
    blocks = drawn_blocks(seed, size, heavy)
    exponents, levels = round_blocks(blocks, bits)
    assert (exponents > 0).all()
    largest = largest_level(bits)
    scaled = blocks.astype(np.float64) / scales_of(exponents)[:, None].astype(np.float64)
    assert np.array_equal(levels, np.clip(np.rint(scaled), -largest, largest))


@given(widths, st.integers(0, 2**32), st.floats(0, 3))
def test_the_scale_is_no_worse_than_the_one_that_fits_the_largest_value(bits: int, seed: int, heavy: float) -> None:
    blocks = drawn_blocks(seed, 1e-3, heavy)
    exponents, _ = round_blocks(blocks, bits)
    for block, exponent in zip(blocks, exponents.tolist(), strict=True):
        fitting = int(np.ceil(np.log2(np.abs(block).max() / (largest_level(bits) + 0.5)))) + EXPONENT_BIAS
        assert exponent <= fitting
        assert error_of(block, exponent, bits) <= error_of(block, fitting, bits) * (1 + 1e-5)


@given(widths, st.integers(0, 2**32), st.floats(0, 3))
def test_a_rounded_step_leaves_less_than_there_was(bits: int, seed: int, heavy: float) -> None:
    """The kept error therefore can't grow by itself."""
    blocks = drawn_blocks(seed, 1.0, heavy)
    exponents, _ = round_blocks(blocks, bits)
    for block, exponent in zip(blocks, exponents.tolist(), strict=True):
        assert error_of(block, exponent, bits) < float((block.astype(np.float64) ** 2).sum())


@pytest.mark.parametrize("bits", STEP_BITS)
def test_a_block_of_zeros_is_empty(bits: int) -> None:
    blocks = np.zeros((3, BLOCK), np.float32)
    blocks[1, 7] = 1
    exponents, levels = round_blocks(blocks, bits)
    assert (exponents > 0).tolist() == [False, True, False]
    assert levels.shape == (1, BLOCK)
    assert levels[0, 7] * scales_of(exponents[1:2])[0] == 1


@pytest.mark.parametrize("bits", STEP_BITS)
def test_steps_below_the_smallest_normal_float_are_left_for_later(bits: int) -> None:
    exponents, levels = round_blocks(np.full((1, BLOCK), 2.0**-128, np.float32), bits)
    assert exponents.tolist() == [0]
    assert len(levels) == 0


@pytest.mark.parametrize("bits", STEP_BITS)
def test_enormous_steps_are_cut_off_at_the_largest_exponent(bits: int) -> None:
    exponents, levels = round_blocks(np.full((1, BLOCK), 2.0**120, np.float32), bits)
    assert exponents.tolist() == [LARGEST_EXPONENT]
    assert (levels == largest_level(bits)).all()


@pytest.mark.parametrize("power", [-126, -100, 0, 1, 100])
def test_an_exponent_byte_is_the_exponent_field_of_a_float(power: int) -> None:
    assert scales_of(np.array([power + EXPONENT_BIAS], np.uint8)).tolist() == [2.0**power]


@pytest.mark.parametrize("bits", [0, 1, 3, 16])
def test_other_widths_are_rejected(bits: int) -> None:
    with pytest.raises(InvalidInput, match=f"bits must be 2, 4 or 8, got {bits}"):
        StepLog(np.ones(4, np.float32), bits)
