"""`python -m benchmarks`: a short version of everything, in a few minutes, into benchmarks/results/.

With --full also the large cohort and the long ends of the sweeps. Then docs/performance.md is written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.table import Table

from benchmarks import (
    authenticated,
    child,
    claims,
    command,
    compare,
    limits,
    page,
    profiling,
    results,
    scale,
    scaling,
    threads,
    whole,
)
from benchmarks.cohort import Cohort
from benchmarks.sweeps import COMMITTEE_SIZE, POD_SIZE, SWEEPS
from sparsesecagg.errors import InvalidInput
from sparsesecagg.planning.plan import Goal
from sparsesecagg.planning.planner import plan_round

FLOWER_COHORT = Cohort(clients=50, dim=170_000, alpha=0.1, dropout=0.1, modulus_bits=8)
WORDS_COHORT = replace(FLOWER_COHORT, modulus_bits=32)
"""The same with the published words: what sparsity gives before the words are shortened."""
SECAGG_COHORT = Cohort(clients=100, dim=1_663_370, alpha=0.1, dropout=0.3, modulus_bits=16)
LARGE = Goal(clients=1_000, dim=1_000_000, dropout=0.1, colluding=0.1, min_anonymity=5)
HUGE_DIM = 100_000_000


def main(
    full: Annotated[bool, typer.Option("--full", help="All points and the large cohort; takes much longer.")] = False,
    only: Annotated[str, typer.Option(help="Comma-separated names of result files; all if left out.")] = "",
) -> None:
    """Measure, write benchmarks/results/*.json and docs/performance.md, and show the claims."""
    parts = _parts(full)
    chosen = [name.strip() for name in only.split(",") if name.strip()] or list(parts)
    for name in chosen:
        if name not in parts:
            raise InvalidInput("only", f"must be some of {', '.join(parts)}, got {name!r}")
    for name in chosen:
        command.err.print(f"{name} …", highlight=False)
        begun = results.begin(publish=True)
        results.write(name, parts[name](), begun)
    page.write()
    command.out.print(_table())


def _parts(full: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        claims.LIMITS: limits.measure,
        claims.COMPARE_FLOWER: lambda: compare.compare(FLOWER_COHORT, repeats=5),
        claims.COMPARE_WORDS: lambda: compare.compare(WORDS_COHORT, ("secagg", "committee"), repeats=5),
        claims.COMPARE_SECAGG: lambda: compare.compare(SECAGG_COHORT, _SHORT, repeats=3 if full else 1),
        claims.AUTHENTICATED: lambda: authenticated.measure(SECAGG_COHORT.clients, FLOWER_COHORT.dim, repeats=7),
        claims.SCALING: lambda: scaling.measure(tuple(SWEEPS), full),
        claims.MEMORY: _memory,
        profiling.RESULT: lambda: profiling.measure(profiling.DEFAULT, list(_SHORT)),
    }
    if full:
        parts |= {
            claims.WHOLE: lambda: whole.measure(whole.COHORT),
            claims.LARGE: _large,
            claims.SCALE: scale.measure,
            claims.THREADS: threads.measure,
        }
    return parts


_SHORT = ("secagg", "pairwise", "committee")


def _memory() -> dict[str, Any]:
    """Measure one client's UPLOAD of a huge model."""
    common = {"dim": HUGE_DIM, "alpha": 0.01, "repeats": 1}
    rounds: dict[str, dict[str, Any]] = {
        "committee": {
            **common,
            "pattern": "committee",
            "clients": 1000,
            "modulus_bits": 16,
            "committee_size": COMMITTEE_SIZE,
            "pod_size": POD_SIZE,
        },
        "pairwise": {**common, "pattern": "pairwise", "clients": 100, "modulus_bits": 16},
    }
    return {"systems": {name: {**child.measure("upload", **one), "settings": one} for name, one in rounds.items()}}


def _large() -> dict[str, Any]:
    """Run one whole round of a large cohort with the planner's settings."""
    plan = plan_round(LARGE)
    cohort_keys = ("clients", "dim", "dropout", "clip", "pattern")
    settings = {key: value for key, value in plan.round_options().items() if key not in cohort_keys}
    cohort = Cohort(LARGE.clients, LARGE.dim, plan.alpha or 1.0, LARGE.dropout, plan.modulus_bits or 32)
    measured = child.measure("planned", cohort=cohort.settings(), plan=settings)
    return {**measured, "plan": settings | {"committee_size": plan.committee_size, "pod_size": plan.pod_size}}


def _table() -> Table:
    table = Table(title="What was asked, what was measured")
    for heading in ("", "asked", "measured", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for claim in claims.claims():
        table.add_row(claim.text, claim.asked, claim.measured, "yes" if claim.holds else "[bold red]no[/]")
    return table


if __name__ == "__main__":
    command.run(main)
