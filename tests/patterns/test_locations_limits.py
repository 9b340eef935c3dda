"""Coded locations at the edge: the longest code that is read, the largest parameter, the last coordinate."""

from __future__ import annotations

import numpy as np
import pytest

from reference import locations as twin
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.patterns.gaps import decode_locations, encode_locations


def test_a_gap_code_may_be_as_long_as_a_bitmap_and_no_longer() -> None:
    """Otherwise valid: without the limit a sender could make the server read any amount of it."""
    for positions, k in (([0], 0), (list(range(16)), 0), ([3, 9, 20], 4)):
        code = twin.rice(positions, k)
        dim = 8 * (len(code) - 1)  # Its bitmap takes as many bytes.
        assert decode_locations(code, dim).tolist() == positions
        assert decode_locations(code, dim - 7).tolist() == positions
        with pytest.raises(MalformedMessage, match=f"at most {len(code) - 1} bytes"):
            decode_locations(code, dim - 8)


def test_where_both_codes_are_equally_long_the_bitmap_is_sent() -> None:
    """A gap code of one position takes eleven bytes."""
    position = np.array([0], np.int64)
    assert encode_locations(position, 80) == twin.bitmap([0], 80)
    assert encode_locations(position, 81) == twin.rice([0], 0)


def test_a_dense_set_written_in_gaps_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="at most"):
        decode_locations(twin.rice(list(range(64)), 0), 64)


@pytest.mark.parametrize("dim", [1, 7, 8, 9, 64, 65])
def test_a_bitmap_has_one_bit_per_coordinate(dim: int) -> None:
    everything = list(range(dim))
    code = twin.bitmap(everything, dim)
    assert decode_locations(code, dim).tolist() == everything
    for wrong in (code[:-1], code + b"\x00"):
        with pytest.raises(MalformedMessage):
            decode_locations(wrong, dim)


@pytest.mark.parametrize("k", [0, 1, 7, 8, 9, 31, 32])
def test_every_parameter_up_to_32_is_read(k: int) -> None:
    positions = [0, 5, 6, 300]
    assert decode_locations(twin.rice(positions, k), 4000).tolist() == positions


def test_a_parameter_of_33_is_refused_even_if_it_fits() -> None:
    with pytest.raises(MalformedMessage, match="lengths"):
        decode_locations(twin.rice([5], 33), 4000)


@pytest.mark.parametrize("k", [3, 6])
def test_the_last_coordinate_is_read_and_the_one_behind_it_refused(k: int) -> None:
    dim = 1000
    assert decode_locations(twin.rice([999], k), dim).tolist() == [999]
    for beyond in (1000, 1001, 1007, 1030):
        with pytest.raises(MalformedMessage, match="not below 1000"):
            decode_locations(twin.rice([3, beyond], k), dim)


def test_a_location_that_32_bits_can_not_hold_is_refused() -> None:
    """It would come out as 5: the quotient's high bits would be lost."""
    dim = 1 << 18
    assert decode_locations(twin.rice([5], 16), dim).tolist() == [5]
    with pytest.raises(MalformedMessage, match=f"not below {dim}"):
        decode_locations(twin.rice([2**32 + 5], 16), dim)


@pytest.mark.parametrize("k", [0, 3, 4])
def test_bytes_behind_the_code_are_refused(k: int) -> None:
    code = twin.rice([3, 9], k)
    assert decode_locations(code, 4000).tolist() == [3, 9]
    with pytest.raises(MalformedMessage, match="lengths"):
        decode_locations(code + b"\x00", 4000)


def test_an_empty_code_of_no_bytes_is_refused() -> None:
    for data in (b"", b"\x01", b"\x01" + bytes(8)):
        with pytest.raises(MalformedMessage, match="no known code"):
            decode_locations(data, 4000)
    assert decode_locations(b"\x01" + bytes(9), 4000).tolist() == []


def test_zeros_behind_the_last_gap_are_refused() -> None:
    """One set, one code of each parameter: nothing can be hidden in it."""
    code = bytearray(twin.rice([5], 0))
    padded = bytes(code[:6]) + (2).to_bytes(4, "little") + bytes(code[10:]) + b"\x00"
    with pytest.raises(MalformedMessage, match="number of coded gaps"):
        decode_locations(padded, 4000)


@pytest.mark.parametrize("positions", [[2**33 - 1], [0, 2**32], [2**32 - 1, 2**32, 2**33 - 1], [7]])
def test_positions_beyond_32_bits_survive(positions: list[int]) -> None:
    """In few bytes: time and memory follow what is sent, not the dimension."""
    code = encode_locations(np.array(positions, np.int64), 2**33)
    assert decode_locations(code, 2**33).tolist() == positions
    assert len(code) < 64


@pytest.mark.parametrize("count", [1, 2, 3, 10, 57, 200])
@pytest.mark.parametrize("gap", [0, 1, 2, 3, 5, 11, 30, 100, 257, 1000, 70_000, 10**6])
def test_the_parameter_is_the_one_that_the_specification_prescribes(count: int, gap: int) -> None:
    """Another would be read as well, but then two implementations would send different bytes."""
    positions = np.arange(count) * (gap + 1) + gap
    code = encode_locations(positions, int(positions[-1]) * 10 + 4000)
    zeros = int(positions[-1]) + 1 - count
    # c·(k+1) + ⌊max(0, z − ⌊c·(2^k − 1)/2⌋) / 2^k⌋
    costs = [count * (k + 1) + max(0, zeros - count * (2**k - 1) // 2) // 2**k for k in range(32)]
    assert code == twin.rice(positions.tolist(), costs.index(min(costs)))
