"""Results describe the protocol that the code beside them speaks."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mutation import PACKAGES, SOURCE, coverage
from sparsesecagg.protocol.parameters import VERSION

ROOT = Path(__file__).parents[1]
RESULTS = sorted([*ROOT.glob("results/*.json"), *ROOT.glob("benchmarks/results/*.json")])
TO_BE_MEASURED_AGAIN: set[str] = set()
"""Older than the protocol. No file may be added here, and one that was measured again must go."""


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Ask git about this repository."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603, S607


@cache
def first_commit() -> str | None:
    """Return the commit since which the code speaks its version, if the history is here."""
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        return None
    found = git("log", "--format=%H", f"-G^VERSION = {VERSION}$", "--", "src/sparsesecagg/protocol").stdout.split()
    return found[-1] if found else None


def is_current(result: dict[str, Any]) -> bool | None:
    """Tell whether a result is of this version: it says so, or its commit does; None if nobody knows here."""
    if "protocol" in result:
        return bool(result["protocol"] == VERSION)
    if (first := first_commit()) is None:
        return None
    commits = [each.rstrip("+") for each in str(result["commit"]).split(", ")]  # Runs of several may stand in one file.
    return all(git("merge-base", "--is-ancestor", first, each).returncode == 0 for each in commits)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_no_result_is_older_than_the_protocol(path: Path) -> None:
    current = is_current(json.loads(path.read_text(encoding="utf-8")))
    if current is None:
        pytest.skip("the history of the repository is not here")
    assert current is (path.name not in TO_BE_MEASURED_AGAIN), "measure again with the code as it is"


def test_control_results_of_other_versions_are_found() -> None:
    assert is_current({"protocol": VERSION})
    assert not is_current({"protocol": VERSION - 1})
    assert is_current({"commit": "0000000"}) in (False, None)
    assert is_current({"commit": "HEAD, 0000000"}) in (False, None)
    assert is_current({"commit": "HEAD"}) in (True, None)


def test_results_of_long_runs_say_what_they_are() -> None:
    for name in ("soak", "chaos", "mutation", "fuzz"):
        path = ROOT / "results" / f"{name}.json"
        if path.exists():
            assert {"command", "protocol", "commit", "complete"} <= set(json.loads(path.read_text(encoding="utf-8")))


def test_mutation_testing_finds_its_packages_and_tests() -> None:
    assert all(list((SOURCE / package).glob("*.py")) for package in PACKAGES)
    assert all(path.exists() for path in coverage.test_files())
