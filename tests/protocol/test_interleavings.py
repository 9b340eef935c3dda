"""A client gives one answer per stage, whatever crashes, is copied, put back, or runs twice."""

from __future__ import annotations

import pytest

from interleavings import MODES, run_interleavings
from sparsesecagg.lab.attacks.base import Mode
from sparsesecagg.lab.attacks.repeats import without_ledger

COUNT = 5_000 // len(MODES)


@pytest.mark.parametrize(("mode", "confirm"), MODES)
def test_no_interleaving_gets_two_answers_or_both_kinds_of_share(mode: Mode, confirm: bool) -> None:
    seen = run_interleavings(mode, confirm, COUNT)
    assert seen["UPLOAD"] > COUNT / 4
    assert seen["UNMASK"] > COUNT / 50, "too few get so far"
    assert seen["AlreadyAnswered"] > COUNT / 10, "the ledger is never asked"


@pytest.mark.parametrize(("mode", "confirm"), MODES)
def test_control_without_the_ledger_two_answers_are_found(mode: Mode, confirm: bool) -> None:
    with without_ledger(), pytest.raises(AssertionError, match=r"two answers|both kinds|two packages"):
        run_interleavings(mode, confirm, 200)
