"""docs/transport.md: what is made for it is up to date, its error table is complete, its program runs."""

from __future__ import annotations

import re
import runpy

import pytest

from sparsesecagg import errors
from transport_page import PAGE, ROOT, diagrams, filled

TEXT = PAGE.read_text(encoding="utf-8")
DOWNLINK = {"WrongStep"}
"""Of the model on its way down, which a transport of one's own sends as it likes."""


def test_states_sizes_and_program_are_those_of_the_code() -> None:
    """Run `python tests/transport_page.py` after a change."""
    assert filled(TEXT) == TEXT
    for path, drawn in diagrams().items():
        assert path.read_text(encoding="utf-8") == drawn


def test_the_page_says_what_to_do_about_every_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    names = {kind.__name__ for kind in kinds if issubclass(kind, errors.ProtocolError)}
    bases = {"ProtocolError", "RoundFailed"}
    section = TEXT.partition("## Errors")[2].partition("\n## ")[0]
    listed = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert listed == (names | {"InvalidInput", "LedgerUnusable"}) - DOWNLINK - bases


@pytest.mark.slow
def test_the_program_over_queues_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Three rounds, in each of which somebody is missing."""
    runpy.run_path(str(ROOT / "examples" / "queues.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "everybody wanted 1, the model is 1.00" in printed
    for number, missing in ((1, 0), (2, 1), (3, 2)):
        survivors = re.search(rf"round {number}: sum of users (\(.*\))", printed)
        assert survivors is not None, printed
        assert str(missing) not in survivors[1]
