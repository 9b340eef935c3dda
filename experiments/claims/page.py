"""The summary of docs/reproduction.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from experiments.claims import others, training
from experiments.claims.claim import NOT_REPRODUCED, NOT_TESTABLE, REFUTED, REPRODUCED, Claim, known
from experiments.common.experiment import NAMES

BEGIN, END = "<!-- claims -->\n", "<!-- end -->\n"
ORDER = ("Table", "Figure 2", "Figure 3", "Figure 4", "Figure 5", "Figure 6", "Theorem", "Corollary", "Lemma", "")


def all_claims(folder: Path) -> list[Claim]:
    """Return every claim, in the paper's order as far as figures and theorems have one."""
    found = known(folder, NAMES)
    claims = [*others.claims(found), *training.claims(found)]
    return sorted(claims, key=lambda one: next(place for place, head in enumerate(ORDER) if one.where.startswith(head)))


def summary(folder: Path) -> str:
    """Return the table, and how many verdicts there are of each kind."""
    claims = all_claims(folder)
    kinds = Counter(_kind(one.verdict) for one in claims)
    verdicts = (REPRODUCED, NOT_REPRODUCED, REFUTED, NOT_TESTABLE)
    counted = ", ".join(f"{kinds[kind]} {kind}" for kind in verdicts if kinds[kind])
    if rest := kinds.total() - sum(kinds[kind] for kind in verdicts):
        counted += f"; {rest} not a claim of the paper"
    lines = [
        "| where | claim | paper | ours: median (range) | verdict | results |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {' | '.join((one.where, one.what, one.paper, one.ours, _bold(one.verdict), one.source))} |"
        for one in claims
    ]
    return "\n" + "\n".join(lines) + f"\n\nOf {len(claims)} rows: {counted}.\n\n"


def _kind(verdict: str) -> str:
    return next(
        (kind for kind in (NOT_REPRODUCED, REPRODUCED, REFUTED, NOT_TESTABLE) if verdict.startswith(kind)), verdict
    )


def _bold(verdict: str) -> str:
    kind = _kind(verdict)
    return verdict.replace(kind, f"**{kind}**", 1)
