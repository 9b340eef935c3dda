"""A clip follows the aggregate, layer by layer."""

from __future__ import annotations

import pytest

from sparsesecagg.rounding import next_clips


def test_a_clip_is_some_headroom_above_the_largest_magnitude() -> None:
    assert next_clips([1.0, 2.0], [0.2, 0.25], 4.0, fastest=8.0).tolist() == pytest.approx([0.8, 1.0])
    assert next_clips([1.0, 2.0], [0.2, 0.25], [2.0, 4.0], fastest=8.0).tolist() == pytest.approx([0.4, 1.0])


@pytest.mark.parametrize(("largest", "clip"), [(1000.0, 4.0), (0.0, 0.25)])
def test_in_one_round_it_changes_by_a_bounded_factor(largest: float, clip: float) -> None:
    assert next_clips([1.0], [largest], 3.0, fastest=4.0).tolist() == [clip]


def test_where_nothing_is_known_it_stays() -> None:
    assert next_clips([1.0, 1.0], [0.5, 0.5], 4.0, fastest=8.0, known=[True, False]).tolist() == [2.0, 1.0]
