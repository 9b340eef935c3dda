"""An error that names its remedy is the last line of a run."""

from __future__ import annotations

import logging

import pytest

from sparsesecagg.flower.errors import LastWords, MissingMod
from sparsesecagg.errors import InvalidInput


def shown(*errors: Exception) -> str:
    """Return what Flower's logger would print for a ServerApp that raises these, and for the exit after it."""
    words, lines = LastWords(), []
    formatter = logging.Formatter("%(levelname)s: %(message)s")
    records = [
        logging.LogRecord(
            "flwr", logging.ERROR, "app.py", 1, "%s raised an exception", ("Simulation",), (type(error), error, None)
        )
        for error in errors
    ]
    records.append(logging.LogRecord("flwr", logging.ERROR, "exit.py", 1, "Exit Code: 700\n\nSee <page>.", (), None))
    for record in records:
        assert words.filter(record)
        lines.append(formatter.format(record))
    return "\n".join(lines)


@pytest.mark.parametrize("error", [InvalidInput("alpha", "must be in (0, 1], got 2"), MissingMod(3, "a reply")])
def test_a_sentence_of_ours_is_the_last_line_and_has_no_traceback(error: Exception) -> None:
    text = shown(error)
    assert text.splitlines()[-1] == f"SecAgg: {error}"
    assert "Exit Code: 700" in text
    assert "Traceback" not in text


def test_other_errors_stay_as_they_are() -> None:
    text = shown(ValueError("a bug"))
    assert "Simulation raised an exception" in text
    assert "ValueError: a bug" in text
    assert text.endswith("See <page>.")
