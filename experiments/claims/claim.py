"""A claim of the paper, what came out here, and the rules by which the two get a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common import results

EXACT, NEAR, DIRECTION, NO, CANNOT_TELL = "exact", "within 10 %", "direction only", "no", "cannot tell"
VERDICTS = (EXACT, NEAR, DIRECTION, NO, CANNOT_TELL)
Results = Mapping[str, Mapping[str, Any]]
"""Name → contents of a result file; those that are not there are missing."""


class Claim(NamedTuple):
    """One row. Only the published pattern counts in it."""

    where: str
    what: str
    paper: str
    ours: str
    stated: str
    """The paper's condition."""
    condition: str
    """Ours, where it differs."""
    verdict: str


def known(folder: Path, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Read the result files that there are."""
    paths = {name: folder / f"{name}.json" for name in names}
    return {name: results.read(path) for name, path in paths.items() if path.exists()}


def missing(where: str, what: str, paper: str, stated: str, source: str) -> Claim:
    """Return a claim that nothing can be said about yet."""
    return Claim(where, what, paper, "–", stated, "–", f"{CANNOT_TELL}: not measured yet (`{source}`)")


def holds(claim_holds: bool) -> str:
    """Return the verdict of a statement that is true or not."""
    return EXACT if claim_holds else NO


def compared(ours: float, claimed: float, precision: float = 0.01) -> str:
    """Return the verdict of a figure: exact within 1 % (or what is printed), within 10 %, within half, or no."""
    off = abs(ours / claimed - 1)
    if off <= precision:
        return EXACT
    if off <= 0.1:
        return NEAR
    return DIRECTION if 1 / 1.5 <= ours / claimed <= 1.5 else NO
