"""A claim, and the rules by which it gets its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common import results

REPRODUCED, NOT_REPRODUCED, REFUTED = "reproduced", "not reproduced", "refuted"
NOT_TESTABLE = "not testable here"
Results = Mapping[str, Mapping[str, Any]]
"""Name → contents of a result file; those that are not there, or were measured with protocol version 1, are missing."""


class Claim(NamedTuple):
    """One row of the summary."""

    where: str
    what: str
    paper: str
    ours: str
    verdict: str
    source: str
    """The result file."""


def known(folder: Path, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Read the result files of protocol version 2 (those say on which data they were measured)."""
    found = {}
    for name in names:
        path = folder / f"{name}.json"
        if path.exists() and "data" in (result := results.read(path)):
            found[name] = result
    return found


def missing(where: str, what: str, paper: str, source: str, reason: str = "") -> Claim:
    """Return a claim that nothing can be said about, with the reason."""
    return Claim(where, what, paper, "–", f"{NOT_TESTABLE}: {reason or 'no results of this version yet'}", source)


def judged(holds: bool) -> str:
    """Return the verdict of a claim that holds or does not."""
    return REPRODUCED if holds else NOT_REPRODUCED
