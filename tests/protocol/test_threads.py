"""Calls in threads: all are made, what fails is raised, and the process is left as it was."""

from __future__ import annotations

import sys
from threading import Barrier

import pytest

from sparsesecagg.protocol.threads import call_all


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_call_is_made_once(threads: int) -> None:
    made: list[int] = []
    call_all([lambda number=number: made.append(number) for number in range(20)], threads)  # type: ignore[misc]
    assert sorted(made) == list(range(20))


def test_threads_run_side_by_side() -> None:
    both = Barrier(2, timeout=10)

    def meet() -> None:
        both.wait()

    call_all([meet, meet], 2)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_call_is_raised_and_the_switch_interval_restored(threads: int) -> None:
    before = sys.getswitchinterval()

    def fail() -> None:
        raise ValueError("as it was")

    with pytest.raises(ValueError, match="as it was"):
        call_all([fail], threads)
    assert sys.getswitchinterval() == before


def test_turns_are_short_until_the_last_of_several_has_finished() -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []

    def nested() -> None:
        call_all([lambda: None], 2)
        seen.append(sys.getswitchinterval())

    call_all([nested], 2)
    assert seen[0] < before
    assert sys.getswitchinterval() == before
