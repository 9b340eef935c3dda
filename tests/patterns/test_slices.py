"""Slices: each is served by the same number of committees in every round, and they rotate."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.patterns import Slices


@st.composite
def cuts(draw: st.DrawFn) -> Slices:
    count = draw(st.integers(1, 40))
    return Slices(draw(st.integers(1, 500)), count, draw(st.integers(1, count)))


@given(cuts(), st.integers(0, 10**12))
def test_every_slice_is_served_by_exactly_so_many_committees(slices: Slices, round_number: int) -> None:
    sent = [slices.of(committee, round_number) for committee in range(slices.count)]
    assert all(len(set(numbers)) == slices.served for numbers in sent)
    assert Counter(number for numbers in sent for number in numbers) == dict.fromkeys(
        range(slices.count), slices.served
    )


@given(cuts(), st.integers(0, 10**6))
def test_over_the_rounds_everybody_sends_everything(slices: Slices, first: int) -> None:
    """As often as each other slice, over as many rounds as there are slices."""
    for committee in {0, slices.count - 1}:
        sent = Counter(number for turn in range(slices.count) for number in slices.of(committee, first + turn))
        assert sent == dict.fromkeys(range(slices.count), slices.served)


@given(cuts())
def test_one_round_later_the_next_ones_are_sent(slices: Slices) -> None:
    for committee in range(slices.count):
        now, then = slices.of(committee, 3), slices.of(committee, 4)
        assert then[0] == (now[-1] + 1) % slices.count
        assert now == [(now[0] + step) % slices.count for step in range(slices.served)]


def test_committee_g_begins_at_g_plus_served_times_the_round() -> None:
    slices = Slices(100, 10, 3)
    assert slices.of(2, 0) == [2, 3, 4]
    assert slices.of(2, 1) == [5, 6, 7]
    assert slices.of(9, 7) == [0, 1, 2]


@given(cuts())
def test_slices_cover_the_model_once(slices: Slices) -> None:
    covered = [place for number in range(slices.count) for place in range(*slices.bounds(number))]
    assert covered == list(range(slices.dim))
    lengths = [stop - start for start, stop in map(slices.bounds, range(slices.count))]
    assert max(lengths) == lengths[0] == min(slices.dim, slices.length)
    assert slices.length == -(-slices.dim // slices.count)


@given(cuts())
def test_numbers_per_slice_are_spread_over_its_coordinates(slices: Slices) -> None:
    spread = slices.spread(np.arange(slices.count))
    for number in range(slices.count):
        start, stop = slices.bounds(number)
        assert spread[start:stop].tolist() == [number] * (stop - start)
    assert len(spread) == slices.dim


def test_more_slices_than_coordinates_leave_some_empty() -> None:
    slices = Slices(3, 5, 1)
    assert [slices.bounds(number) for number in range(5)] == [(0, 1), (1, 2), (2, 3), (3, 3), (3, 3)]
