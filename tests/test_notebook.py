"""The notebook runs from top to bottom, and what is committed is what it prints."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def printed(notebook: Any) -> list[str]:
    return [output.text for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output]


def drawn(notebook: Any) -> int:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_a_run_prints_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))  # The kernel is a process of its own.
    from run_notebook import executed  # type: ignore[import-not-found]

    committed = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    found = executed()
    assert printed(found) == printed(committed)
    assert drawn(found) == drawn(committed) == 1


def test_no_path_of_a_machine_is_in_it() -> None:
    text = (EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8")
    assert not re.search(r'"[^"]*(/home/|/tmp/|/root/|/Users/|C:\\\\)', text)
