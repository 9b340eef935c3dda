"""Thousands of rounds over a broken network: an exact sum or a typed error, every time."""

from __future__ import annotations

import pytest

from faults import EXACT, Fault, run_schedules

SCHEDULES = 2000
CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_schedules_end_with_an_exact_sum_or_a_typed_error(chunk: int) -> None:
    """2,000 schedules in all; `make soak` runs 100,000. The faults really happen, and many rounds survive them."""
    count = SCHEDULES // CHUNKS
    endings, seen = run_schedules(chunk * count, count)
    assert sum(endings.values()) == count
    assert endings[EXACT] > count // 4
    assert len(endings) > 1, "some rounds fail, with a typed error"
    assert all(seen[fault.value] for fault in Fault if fault is not Fault.NONE)
    assert seen["MalformedMessage"] > 0
    assert seen["DuplicateMessage"] > 0
    assert seen["WrongStage"] > 0
