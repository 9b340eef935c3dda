"""Running commands as a user would, in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparsesecagg.lab.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return the one JSON object on standard output."""
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    assert out.count("\n") == 1, "one object and nothing else"
    result: dict[str, Any] = json.loads(out)
    return result
