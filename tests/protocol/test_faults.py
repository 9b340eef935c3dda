"""Two thousand runs over a broken network: exact sums or typed errors, in every round of every one."""

from __future__ import annotations

from typing import Any

import pytest

from faults import EXACT, Fault, run_schedules
from interleavings import without_ledger
from sparsesecagg.protocol.combine import Sum

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


def test_control_a_server_that_adds_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Sum.total

    def off_by_one(self: Sum) -> Any:
        combined = right(self)
        combined.values[0] += 1
        return combined

    monkeypatch.setattr(Sum, "total", off_by_one)
    with pytest.raises(AssertionError, match="WRONG SUM"):
        run_schedules(0, 20)


def test_control_clients_without_a_ledger_are_found() -> None:
    with without_ledger(), pytest.raises(AssertionError, match="two answers"):
        run_schedules(0, 400)
