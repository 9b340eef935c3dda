"""Ranges are found by votes, then follow the means, array by array."""

from __future__ import annotations

import numpy as np
import pytest

from sparsesecagg.errors import MalformedMessage
from sparsesecagg.ranges import CELLS, FASTEST, MOST_HEADROOM, Ranges, counted, vote


def voted(*users: list[float]) -> list[float]:
    return counted(np.mean([vote(largest) for largest in users], axis=0))


def test_a_vote_names_the_smallest_power_of_two_that_holds_the_update() -> None:
    assert vote([0.3, 5.0]).sum() == 2
    for size, power in [(0.3, 0.5), (0.5, 0.5), (0.51, 1.0), (5.0, 8.0), (1e-3, 2**-9), (40_000.0, 65_536.0)]:
        assert voted([size] * 1) == [power]


@pytest.mark.parametrize(("size", "power"), [(0.0, 2**-32), (1e-30, 2**-32), (1e30, 2**31), (float("nan"), 2**-32)])
def test_what_no_cell_holds_goes_to_the_nearest(size: float, power: float) -> None:
    assert voted([size]) == [power]


def test_a_range_holds_all_users_but_a_few_outliers_widen_it_by_a_factor_of_eight_at_most() -> None:
    assert voted(*[[0.01]] * 5, *[[0.1]] * 5) == [0.125]
    assert voted(*[[0.01]] * 9, [0.1]) == [0.125]
    assert voted(*[[0.01]] * 9, [1e9]) == [2**-6 * 8]


def test_arrays_have_ranges_of_their_own() -> None:
    assert voted([0.001, 1000.0]) == [2**-9, 1024.0]
    assert len(vote([1.0] * 7)) == 7 * CELLS


def test_the_first_mean_after_a_vote_decides_how_much_wider_single_updates_are() -> None:
    ranges = Ranges([1.0, 1.0], 2.0, measured=True)
    ranges.follow([0.1, 0.9])
    assert ranges.values == pytest.approx([1.0, 1.8])
    ranges.follow([0.08, 0.8])
    assert ranges.values == pytest.approx([0.8, 1.6])


def test_without_a_vote_the_headroom_is_the_one_that_is_given() -> None:
    ranges = Ranges([1.0, 2.0], 4.0)
    ranges.follow([0.2, 0.25])
    assert ranges.values == pytest.approx([0.8, 1.0])


@pytest.mark.parametrize(("largest", "wanted"), [(1000.0, FASTEST), (0.0, 1 / FASTEST)])
def test_in_one_round_a_range_changes_by_a_bounded_factor(largest: float, wanted: float) -> None:
    ranges = Ranges([1.0], 3.0)
    ranges.follow([largest])
    assert ranges.values.tolist() == [wanted]


def test_where_nothing_is_known_a_range_stays() -> None:
    ranges = Ranges([1.0, 1.0, 1.0], 4.0)
    ranges.follow([0.5, 0.5, float("nan")], [True, False, True])
    assert ranges.values.tolist() == [2.0, 1.0, 1.0]


def test_clipped_values_widen_the_arrays_whose_mean_came_near_and_outliers_do_not() -> None:
    ranges = Ranges([1.0, 1.0], 2.0)
    ranges.follow([0.5, 0.01], clipped=0.02)
    assert ranges.values == pytest.approx([2.0, 0.125])
    ranges.follow([0.5, 0.01], clipped=1e-6)
    assert ranges.values[0] == pytest.approx(2.0)
    for _ in range(20):
        ranges.follow([0.5, 0.05], clipped=0.5)
    assert ranges.values[0] <= MOST_HEADROOM * 0.5


def test_an_array_that_has_not_moved_keeps_the_range_that_was_voted_for() -> None:
    """A layer that is frozen at first: its headroom is measured when it moves."""
    ranges = Ranges([1.0, 1.0], 2.0, measured=True)
    for _ in range(20):
        ranges.follow([0.1, 0.0])
    assert ranges.values == pytest.approx([1.0, 1.0])
    ranges.follow([0.1, 0.25])
    assert ranges.values == pytest.approx([1.0, 1.0]), "four times the mean"


def test_an_array_that_stands_still_for_long_moves_again_within_a_few_rounds() -> None:
    """Its range shrinks, since it may have been too wide, but not to nothing."""
    ranges = Ranges([1.0, 1.0], 2.0)
    for _ in range(1000):
        ranges.follow([0.5, 0.0])
    assert ranges.values == pytest.approx([1.0, 1 / 16])
    for _ in range(3):
        ranges.follow([0.5, min(0.5, ranges.values[1])], clipped=0.2)
    assert ranges.values[1] >= 0.5


def test_nothing_has_moved_until_a_mean_is_not_zero() -> None:
    ranges = Ranges([1.0, 1.0], 2.0, measured=True)
    ranges.follow([0.0, 0.0])
    assert not ranges.moved
    ranges.follow([0.0, 0.1])
    assert ranges.moved


def test_headrooms_do_not_grow_until_rounding_sets_the_ranges() -> None:
    """However often values are clipped; a mean that is all rounding is about a tenth of the range."""
    ranges = Ranges([1.0], 2.0)
    for _ in range(50):
        ranges.follow([ranges.values[0] / 20], clipped=0.5)
    assert ranges.values[0] <= 1.0


def test_a_saved_copy_goes_on_alike() -> None:
    first = Ranges([1.0, 2.0], 2.0, measured=True)
    for _ in range(2):
        second = Ranges.restore(first.save())
        for ranges in (first, second):
            ranges.follow([0.25, 0.1], clipped=0.01)
        np.testing.assert_array_equal(first.values, second.values)


@pytest.mark.parametrize(
    "data", [b"", b"\x94\x90\x90\x90", b"\x94\x91\x01\x91\x01\x92\x01\x01\x91\x01", b"\x93\x90\x90\x90"]
)
def test_other_bytes_are_no_saved_ranges(data: bytes) -> None:
    """Cut, of lists that differ in length, with a list too few."""
    with pytest.raises(MalformedMessage):
        Ranges.restore(data)
