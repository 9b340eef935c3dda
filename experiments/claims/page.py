"""The generated parts of docs/reproduction.md: outcome, what is missing, four tables of claims, and the hypotheses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.claims import measured, theory
from experiments.claims.claim import VERDICTS, Claim, Results, known
from experiments.common.experiment import NAMES

END = "<!-- end -->\n"
HEAD = "| where | claim | paper | ours | stated condition | our condition | agree? |"


def tables(found: Results) -> dict[str, list[Claim]]:
    """Return the claims of each table."""
    return {
        "theory": theory.claims(found),
        "bytes": measured.of_bytes(found),
        "training": measured.of_training(found),
        "clock": measured.of_the_clock(found),
    }


def parts(folder: Path) -> dict[str, str]:
    """Return every generated part of the page, by the name of its mark."""
    found = known(folder, NAMES)
    claims = tables(found)
    lines = {name: _table(rows) for name, rows in claims.items()}
    lines["outcome"] = [f"{_counted(claims)} {_missing(found)}"]
    lines["hypotheses"] = measured.hypotheses(found)
    lines["provenance"] = ["Measured: " + "; ".join(_provenance(found[name]) for name in NAMES if name in found) + "."]
    return {name: "\n".join(some) + "\n" for name, some in lines.items()}


def published(document: str, folder: Path) -> str:
    """Return the document with every marked part written anew."""
    for name, text in parts(folder).items():
        begin = f"<!-- {name} -->\n"
        before, rest = document.split(begin)
        document = before + begin + text + END + rest.split(END, 1)[1]
    return document


def _table(claims: Sequence[Claim]) -> list[str]:
    rows = (
        f"| {' | '.join((one.where, one.what, one.paper, one.ours, one.stated, one.condition, _bold(one.verdict)))} |"
        for one in claims
    )
    return [HEAD, "| --- | --- | --- | --- | --- | --- | --- |", *rows]


def _kind(verdict: str) -> str:
    return next(kind for kind in VERDICTS if verdict.startswith(kind))


def _bold(verdict: str) -> str:
    kind = _kind(verdict)
    return verdict.replace(kind, f"**{kind}**", 1)


def _counted(claims: Mapping[str, Sequence[Claim]]) -> str:
    kinds = Counter(_kind(one.verdict) for rows in claims.values() for one in rows)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in VERDICTS if kinds[kind])
    return f"Of {kinds.total()} rows below: {counts}. Only the published pattern is counted."


def _missing(found: Results) -> str:
    absent = [name for name in NAMES if name not in found]
    partial = [name for name in NAMES if name in found and not found[name]["complete"]]
    sentences = []
    if absent:
        sentences.append(
            f"Not measured again on version 3 yet: {', '.join(absent)}; earlier figures described a pattern whose "
            f"steps were 8.7 % too short, and are withdrawn. `sparsesecagg reproduce {absent[0]}` measures one."
        )
    if partial:
        sentences.append(f"Not complete: {', '.join(partial)}; the same command resumes it.")
    return " ".join(sentences) or "All experiments are complete."


def _provenance(result: Mapping[str, Any]) -> str:
    machine, seeds = result["machine"], result["seeds"]
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    note = "" if result["data"]["sha256"] is None else f", {result['data']['name']} ({result['data']['note']})"
    return f"{result['name']} (commit {result['commit']}, {result['date']}, {which}{note}, {machine['processor']})"
