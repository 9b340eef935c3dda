"""Locations: a round trip for every set, close to the entropy, and nothing but a typed error for anything else."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference import locations as twin
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.patterns.gaps import decode_locations, encode_locations
from strategies import mutated, positions_below


def bernoulli(dim: int, p: float, seed: int = 0) -> NDArray[np.int64]:
    return np.flatnonzero(np.random.default_rng(seed).random(dim) < p)


def bitmap_size(dim: int) -> int:
    return 1 + (dim + 7) // 8


# Coding


@given(positions_below())
def test_every_set_of_positions_survives(case: tuple[NDArray[np.int64], int]) -> None:
    positions, dim = case
    read = decode_locations(encode_locations(positions, dim), dim)
    assert read.tolist() == positions.tolist()
    assert read.dtype == np.int64


@given(positions_below(largest_dim=400))
def test_the_bytes_are_those_of_the_bitwise_twin(case: tuple[NDArray[np.int64], int]) -> None:
    """Bitmap or Rice code, as the description says."""
    positions, dim = case
    data = encode_locations(positions, dim)
    expected = twin.bitmap(positions.tolist(), dim) if data[0] == 0 else twin.rice(positions.tolist(), k=data[1])
    assert data == expected


@given(positions_below(largest_dim=400), st.integers(0, 10))
def test_a_rice_code_with_any_parameter_is_understood(case: tuple[NDArray[np.int64], int], k: int) -> None:
    """The reader does not depend on how the writer chooses."""
    positions, dim = case
    data = twin.rice(positions.tolist(), k)
    if len(data) <= bitmap_size(dim):
        assert decode_locations(data, dim).tolist() == positions.tolist()


@given(positions_below())
def test_a_code_is_never_larger_than_the_bitmap_and_its_mark(case: tuple[NDArray[np.int64], int]) -> None:
    positions, dim = case
    assert len(encode_locations(positions, dim)) <= bitmap_size(dim)


@pytest.mark.parametrize("p", [0.001, 0.01, 0.05, 0.095, 0.2])
def test_sparse_sets_come_within_three_percent_of_their_entropy(p: float) -> None:
    """0.095 is the paper's p at α = 0.1, 165,000 a small model."""
    dim = 165_000
    entropy = -(p * log2(p) + (1 - p) * log2(1 - p)) * dim / 8
    size = np.mean([len(encode_locations(bernoulli(dim, p, seed), dim)) for seed in range(5)])
    assert size <= 1.03 * entropy + 12  # Mark, parameter, count and length; bytes filled up.


def test_the_papers_setting_costs_less_than_half_a_bit_per_coordinate() -> None:
    assert 8 * len(encode_locations(bernoulli(165_000, 0.095), 165_000)) < 0.5 * 165_000


@pytest.mark.parametrize("p", [0.3, 0.5, 0.9, 1.0])
def test_dense_sets_cost_a_bitmap_at_most(p: float) -> None:
    assert len(encode_locations(bernoulli(10_000, p), 10_000)) <= bitmap_size(10_000)


@pytest.mark.parametrize("dim", [1, 7, 8, 9, 10**6])
@pytest.mark.parametrize("kind", ["empty", "full", "first", "last"])
def test_the_corners_survive(dim: int, kind: str) -> None:
    places = {"empty": slice(0), "full": slice(None), "first": slice(1), "last": slice(dim - 1, None)}
    positions = np.arange(dim)[places[kind]]
    data = encode_locations(positions, dim)
    assert decode_locations(data, dim).tolist() == positions.tolist()
    assert len(data) <= bitmap_size(dim)
    if dim == 10**6 and kind != "full":
        assert len(data) <= 20


# Refusals

SPARSE, DENSE = (encode_locations(bernoulli(500, p), 500) for p in (0.05, 0.6))


def test_the_examples_are_one_of_each_code() -> None:
    assert (SPARSE[0], DENSE[0]) == (1, 0)


@pytest.mark.parametrize("data", [SPARSE, DENSE], ids=["gaps", "bitmap"])
def test_truncated_bytes_are_refused(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            decode_locations(data[:size], 500)


@pytest.mark.parametrize("data", [SPARSE, DENSE], ids=["gaps", "bitmap"])
@pytest.mark.parametrize("more", [b"\x00", b"\x01", b"\xff", bytes(100)])
def test_trailing_bytes_are_refused(data: bytes, more: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_locations(data + more, 500)


@pytest.mark.parametrize("mark", [2, 3, 0x7F, 0x80, 0xFF])
def test_an_unknown_code_is_refused(mark: int) -> None:
    for data in (SPARSE, DENSE):
        with pytest.raises(MalformedMessage, match="code"):
            decode_locations(bytes([mark]) + data[1:], 500)


@pytest.mark.parametrize("dim", [499, 8 * 62, 1])
def test_a_position_beyond_the_model_is_refused(dim: int) -> None:
    """In a bitmap it would sit in the padding."""
    for code in (twin.bitmap([499], 500), twin.rice([499], 6)):
        with pytest.raises(MalformedMessage):
            decode_locations(code, dim)


def test_padding_that_is_not_zero_is_refused() -> None:
    gaps = bytearray(twin.rice([3, 9, 20], 3))  # Nine low bits: the last byte has seven to spare.
    assert decode_locations(bytes(gaps), 100).tolist() == [3, 9, 20]
    gaps[-1] |= 0x80
    with pytest.raises(MalformedMessage, match="padding"):
        decode_locations(bytes(gaps), 100)


@pytest.mark.parametrize("place", [2, 6])
@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1])
def test_counts_and_lengths_that_do_not_fit_are_refused(place: int, value: int) -> None:
    """Before anything of that size is allocated."""
    data = bytearray(SPARSE)
    data[place : place + 4] = value.to_bytes(4, "little")
    with pytest.raises(MalformedMessage):
        decode_locations(bytes(data), 500)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 8, 2**32 - 1])
def test_a_count_that_only_the_unary_bits_contradict_is_refused(count: int) -> None:
    """Without low bits the count changes no length."""
    data = bytearray(twin.rice([0, 1, 3], 0))
    assert decode_locations(bytes(data), 500).tolist() == [0, 1, 3]
    data[2:6] = count.to_bytes(4, "little")
    with pytest.raises(MalformedMessage):
        decode_locations(bytes(data), 500)


def test_a_parameter_beyond_any_gap_is_refused() -> None:
    for k in (33, 64, 255):
        with pytest.raises(MalformedMessage):
            decode_locations(b"\x01" + bytes([k]) + bytes(8), 500)


@given(positions_below(largest_dim=300), st.data())
def test_mutated_bytes_give_valid_positions_or_a_typed_error(
    case: tuple[NDArray[np.int64], int], data: st.DataObject
) -> None:
    """Whatever is accepted is strictly increasing and below the dimension."""
    positions, dim = case
    try:
        read = decode_locations(data.draw(mutated(encode_locations(positions, dim))), dim)
    except MalformedMessage:
        return
    assert all(0 <= place < dim for place in read.tolist())
    assert (np.diff(read) > 0).all()


@given(st.sampled_from([b"", b"\x00", b"\x01"]), st.binary(max_size=60), st.integers(1, 500))
def test_random_bytes_give_valid_positions_or_a_typed_error(mark: bytes, data: bytes, dim: int) -> None:
    try:
        read = decode_locations(mark + data, dim)
    except MalformedMessage:
        return
    assert read.tolist() == sorted({place for place in read.tolist() if 0 <= place < dim})


def test_a_code_longer_than_a_bitmap_is_refused() -> None:
    """The encoder never writes one, and reading it would cost memory."""
    count = 8000
    oversized = (
        b"\x01\x03" + count.to_bytes(4, "little") + (8000).to_bytes(4, "little") + b"\xff" * 1000 + bytes(10_000)
    )
    with pytest.raises(MalformedMessage):
        decode_locations(oversized, 8000)
