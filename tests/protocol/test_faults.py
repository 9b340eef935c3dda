"""Two thousand runs over a broken network: exact sums or typed errors, in every round of every one."""

from __future__ import annotations

import pytest

from faults import EXACT, Fault, run_schedules

SCHEDULES = 2000
CHUNKS = 8


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_schedules_end_with_an_exact_sum_or_a_typed_error(chunk: int) -> None:
    """2,000 schedules in all; `make soak` runs 100,000. The faults really happen, and many rounds survive them."""
    count = SCHEDULES // CHUNKS
    endings, seen = run_schedules(chunk * count, count)
    assert sum(endings.values()) >= count, "several rounds in each, or an error that ended the set-up"
    assert endings[EXACT] > count
    assert len(endings) > 1, "some rounds fail, with a typed error"
    assert all(seen[fault.value] for fault in Fault if fault is not Fault.NONE)
    assert seen["MalformedMessage"] > 0
    assert seen["DuplicateMessage"] > 0
    assert seen["WrongStage"] > 0
    assert seen["AlreadyAnswered"] > 0
    assert seen["WronglyExcluded"] == 0, "faults on the way are nobody's fault"
