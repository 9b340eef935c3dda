"""Plan a set of cohorts, write results/plans.json, and the tables of docs/planning.md from it.

    .venv/bin/python -m experiments.plans.run

Nothing is sampled, so the numbers do not depend on seed or machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.common.results import commit
from sparsesecagg import __version__
from sparsesecagg.cli.plan import as_json
from sparsesecagg.patterns.groups import group_count, group_sizes
from sparsesecagg.planning.planner import Goal, plan_round
from sparsesecagg.privacy.anonymity import colluders_in_a_group, failed_rounds, honest_in_sum

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results" / "plans.json", ROOT / "docs" / "planning.md"
DIM = 1_663_370
COHORTS: tuple[dict[str, Any], ...] = (
    {"clients": 5, "min_anonymity": 3},
    {"clients": 10},
    {"clients": 25},
    {"clients": 50},
    {"clients": 100},
    {"clients": 300},
    {"clients": 1000},
    {"clients": 1000, "alpha": 0.04},
    {"clients": 1000, "group_size": 77},
    {"clients": 10_000},
    {"clients": 1000, "colluding": 0.2},
    {"clients": 100, "dropout": 0.3},
    {"clients": 100, "dropout": 0.3, "server": "semi-honest"},
    {"clients": 1000, "dropout": 0.3},
    {"clients": 1000, "dropout": 0.3, "server": "semi-honest"},
    {"clients": 1000, "dropout": 0.3, "colluding": 0.3333},
    {"clients": 1000, "dropout": 0.3, "colluding": 0.3333, "server": "semi-honest"},
)
"""θ = γ = 0.1, five honest users, α = 0.1 and a malicious server unless it says otherwise."""
STRICTER = ((10, None), (25, None), (50, None), (100, None), (300, None), (1000, None), (1000, 77), (10_000, None))
"""Cohorts, with the size of their groups, whose thresholds are also computed for a stricter availability."""
FEWER_FAILED = 0.01


def main() -> None:
    """Plan, save, publish."""
    numbers = compute()
    result = {
        "command": "python -m experiments.plans.run",
        "version": __version__,
        "commit": commit(),
        "numbers": numbers,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(publish(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")


def compute() -> dict[str, Any]:
    """Return the plans of all cohorts, and the thresholds that fail half as often."""
    return {"plans": [plan_of(cohort) for cohort in COHORTS], "thresholds": [thresholds(*each) for each in STRICTER]}


def plan_of(cohort: dict[str, Any]) -> dict[str, Any]:
    """Return one cohort's plan."""
    usual = {"dim": DIM, "dropout": 0.1, "colluding": 0.1, "min_anonymity": 5, "alpha": 0.1}
    plan = plan_round(Goal(**{**usual, **cohort}))
    return {"cohort": {**usual, "server": "malicious", **cohort}, **as_json(plan)}


def thresholds(clients: int, group_size: int | None) -> dict[str, Any]:
    """Return the planned threshold beside the largest that fails in at most 1 % of the rounds, with what both keep.

    θ = γ = 0.1 and a malicious server. In the second, half a colluding user is rounded down.
    """
    plan = plan_round(Goal(clients, DIM, 0.1, 0.1, 5, group_size=group_size))
    sizes = group_sizes(clients, group_count(clients, group_size))
    smallest, largest = min(sizes), max(sizes)
    stricter = next(t for t in range(smallest, 0, -1) if failed_rounds(smallest, t, 0.1) <= FEWER_FAILED)
    colluders = colluders_in_a_group(sizes, clients // 10, -40.0)
    return {
        "clients": clients,
        "groups": len(sizes),
        "group_size": largest,
        "threshold": plan.threshold,
        "anonymity": plan.anonymity,
        "stricter_threshold": stricter,
        "stricter_anonymity": min(honest_in_sum(size, stricter, colluders, "malicious") for size in sizes),
    }


def publish(page: str, numbers: dict[str, Any]) -> str:
    """Return the page with its tables written anew."""
    for name, lines in (("plans", plan_lines(numbers)), ("thresholds", threshold_lines(numbers))):
        begin, end = f"<!-- table: results/plans.json, {name} -->\n", f"<!-- end: {name} -->\n"
        before, rest = page.split(begin)
        page = before + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
    return page


def plan_lines(numbers: dict[str, Any]) -> list[str]:
    """Return the table of plans."""
    lines = [
        "| N | θ | γ | server | honest users in every sum | groups | P, t | rounds lost | α | bits | upload "
        "| all sent | all received | times less than SecAgg |",
        "| ---: | ---: | ---: | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in numbers["plans"]:
        asked = row["cohort"]
        start = f"| {asked['clients']:,} | {asked['dropout']:g} | {asked['colluding']:.3g} | {asked['server']} "
        if not row["feasible"]:
            lines.append(f"{start}| not feasible: too few users stay | | | | | | | | | |")
            continue
        lines.append(
            f"{start}| {row['anonymity']} | {row['groups']} | {row['group_size']}, {row['threshold']} "
            f"| {row['abort_probability']:.1%} | {asked['alpha']:g} | {row['modulus_bits']} "
            f"| {row['upload_bytes']:,} | {row['all_bytes_sent']:,} | {row['all_bytes_received']:,} "
            f"| {row['compression_vs_secagg']:.1f} |"
        )
    return lines


def threshold_lines(numbers: dict[str, Any]) -> list[str]:
    """Return the table of thresholds."""
    lines = [
        "| N | groups | P | t, at most 2 % of the rounds fail | honest users | t, at most 1 % | honest users |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['clients']:,} | {row['groups']} | {row['group_size']} | {row['threshold']} | {row['anonymity']} "
        f"| {row['stricter_threshold']} | {row['stricter_anonymity']} |"
        for row in numbers["thresholds"]
    ]
    return lines


if __name__ == "__main__":
    main()
