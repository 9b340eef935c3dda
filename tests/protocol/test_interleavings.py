"""A client accepts one header and gives one answer per stage, whatever crashes, is copied, put back, or runs twice."""

from __future__ import annotations

import pytest

from interleavings import MODES, Mode, run_interleavings, without_ledger

COUNT = 5_000 // len(MODES)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_no_interleaving_gets_two_headers_two_answers_or_both_kinds_of_share(mode: Mode) -> None:
    seen = run_interleavings(mode, 0, COUNT)
    assert seen["ACCEPTED"] > COUNT / 4
    assert seen["UPLOADED"] > COUNT / 4
    assert seen["OVER"] > COUNT / 10, "too few get so far"
    assert seen["AlreadyAnswered"] > COUNT / 10, "the ledger is never asked"


@pytest.mark.parametrize("mode", MODES)
def test_control_without_the_ledger_two_answers_are_found(mode: Mode) -> None:
    with without_ledger(), pytest.raises(AssertionError, match=r"two headers|two answers|both kinds|two packages"):
        run_interleavings(mode, 0, 200)
