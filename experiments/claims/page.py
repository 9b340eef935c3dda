"""The generated parts of docs/reproduction.md: outcome, what is missing, four tables of claims, and the hypotheses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from experiments.claims import measured, theory
from experiments.claims.claim import VERDICTS, Claim, Results, known
from experiments.common.experiment import NAMES
from experiments.common.summaries import published as published_settings

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
    lines["outcome"] = [f"{_counted(claims)} {_rounds(found)} {_missing(found)}"]
    lines["hypotheses"] = measured.hypotheses(found)
    lines["ours"] = measured.ours(found)
    lines["rerun"] = [measured.rerun(found, known(folder / "rerun", tuple(measured.UPLOADS)))]
    return {name: "\n".join(some) + "\n" for name, some in lines.items()}


def published(document: str, folder: Path) -> str:
    """Return the document with every marked part written anew: from its mark to the next empty line."""
    for name, text in parts(folder).items():
        before, rest = document.split(mark := f"<!-- {name} -->\n")
        document = before + mark + text + "\n" + rest.split("\n\n", 1)[1]
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


def _rounds(found: Results) -> str:
    """Return SecAgg's rounds to the target over the published pattern's, the least and the most of all runs."""
    ratios = [
        base["reached_target_at"] / run["reached_target_at"]
        for name in measured.UPLOADS
        if name in found
        for one in published_settings(found[name])
        for run, base in one.pairs
    ]
    if not ratios:
        return "Nothing is trained yet."
    return (
        f"SecAgg needed {min(ratios):.2f} to {max(ratios):.2f} times the published pattern's rounds, in the median "
        f"{median(ratios):.2f} times, in {len(ratios)} pairs of runs."
    )


def _missing(found: Results) -> str:
    absent = [name for name in NAMES if name not in found]
    partial = [name for name in NAMES if name in found and not found[name]["complete"]]
    sentences = []
    if absent:
        sentences.append(f"**Missing**: {', '.join(absent)} (not measured on this version).")
    if partial:
        texts = (f"{name} ({_so_far(found[name])})" for name in partial)
        sentences.append(f"**Not complete**: {'; '.join(texts)}.")
    if absent or partial:
        sentences.append("`sparsesecagg reproduce NAME` continues with what is missing.")
    return " ".join(sentences) or "All experiments are complete."


def _so_far(result: Mapping[str, Any]) -> str:
    """Return by N how many seeds there are of all three systems, or which systems there are."""
    runs = result["numbers"].get("runs", ())
    if not runs or "label" not in runs[0]:
        done = dict.fromkeys((run["figure"], run["clients"]) for run in runs)
        return ", ".join(f"{figure} at N = {clients}" for figure, clients in done)
    texts = []
    planned = {cohort["clients"] for cohort in result["configuration"]["training"]["cohorts"]}
    for clients in sorted(planned):
        systems: dict[int, set[str]] = {}
        for run in runs:
            if run["clients"] == clients:
                systems.setdefault(run["seed"], set()).add(run["system"])
        if not systems:
            texts.append(f"N = {clients}: nothing yet")
            continue
        whole = sum(some == {"secagg", "pairwise", "sliced"} for some in systems.values())
        seeds = (
            f"{whole} seed{'s' * (whole > 1)}"
            if whole
            else f"only {' and '.join(sorted(set.union(*systems.values())))}"
        )
        texts.append(f"N = {clients}: {seeds}")
    return ", ".join(texts)
