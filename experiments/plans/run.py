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
from sparsesecagg.privacy.anonymity import Structure, failure_log2
from sparsesecagg.planning.candidates import FAILED_POD, THIN_COMMITTEE, highest_demand
from sparsesecagg.planning.plan import EXCLUDED, Goal
from sparsesecagg.planning.planner import plan_round

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results" / "plans.json", ROOT / "docs" / "planning.md"
DIM, ANONYMITY = 1_663_370, 5
COHORTS = (
    (50, 0.1, 0.1),
    (100, 0.05, 0.05),
    (100, 0.1, 0.1),
    (300, 0.1, 0.1),
    (1000, 0.1, 0.1),
    (1000, 0.1, 0.2),
    (10_000, 0.1, 0.1),
    (1000, 0.3, 0.1),
    (1000, 0.3, 1 / 3),
)
SMALLEST = (
    # N, θ, γ, committees per pod with and without CONFIRM, excluded.
    (50, 0.1, 0.1, 2, 2, 0.0),
    (100, 0.05, 0.05, 2, 3, 0.0),
    (100, 0.1, 0.1, 2, 3, 0.0),
    (300, 0.1, 0.1, 2, 4, 0.0),
    (1000, 0.1, 0.1, 2, 4, 0.0),
    (1000, 0.1, 0.2, 2, 3, 0.0),
    (10_000, 0.1, 0.1, 2, 3, 0.0),
    (1000, 0.3, 0.1, 4, 3, 0.0),
    (300, 0.1, 0.1, 2, 4, EXCLUDED),
    (1000, 0.1, 0.1, 2, 3, EXCLUDED),
    (1000, 0.1, 0.2, 2, 4, EXCLUDED),
)


def main() -> None:
    """Plan, save, publish."""
    numbers = compute()
    result = {
        "command": "python -m experiments.plans.run",
        "version": __version__,
        "commit": commit(),
        "goal": {"dim": DIM, "min_anonymity": ANONYMITY, "failure_log2": -40},
        "numbers": numbers,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(publish(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")


def compute() -> dict[str, Any]:
    """Return the plans of all cohorts, and the smallest groups of equal size."""
    plans = []
    for clients, dropout, colluding in COHORTS:
        cohort = {"clients": clients, "dropout": round(dropout, 4), "colluding": round(colluding, 4)}
        goal = Goal(clients, DIM, dropout, colluding, ANONYMITY)
        lying = plan_round(goal)
        curious = plan_round(Goal(clients, DIM, dropout, colluding, ANONYMITY, server="curious"))
        plans.append({**cohort, "lying": as_json(lying), "curious": as_json(curious)})
    smallest = [
        {
            "clients": clients,
            "dropout": dropout,
            "colluding": colluding,
            "excluded": excluded,
            "confirm": smallest_groups(
                Goal(clients, DIM, dropout, colluding, ANONYMITY, excluded=excluded), with_, True
            ),
            "no_confirm": smallest_groups(
                Goal(clients, DIM, dropout, colluding, ANONYMITY, excluded=excluded), without, False
            ),
        }
        for clients, dropout, colluding, with_, without, excluded in SMALLEST
    ]
    return {"plans": plans, "smallest": smallest}


def smallest_groups(goal: Goal, committees_per_pod: int, confirm: bool) -> dict[str, int]:
    """Return the smallest groups, all of one size, as many as fit into those who are left, that keep the goal."""
    for members in range(goal.min_anonymity, goal.population // committees_per_pod + 1):
        holders = committees_per_pod * members
        survivors = highest_demand(goal.availability, THIN_COMMITTEE, (members,))
        threshold = highest_demand(goal.availability, FAILED_POD, (holders,))
        if min(survivors, threshold) < 1:
            continue
        groups = Structure(((members,) * committees_per_pod,) * (goal.population // holders), survivors, threshold)
        failure = failure_log2(
            groups,
            anonymity=goal.min_anonymity,
            colluders=goal.colluders,
            population=goal.population,
            confirm=confirm,
        )
        if failure <= goal.failure_log2:
            return {"committee_size": members, "min_survivors": survivors, "pod_size": holders, "threshold": threshold}
    raise AssertionError("the cohorts of this table have such groups")


def publish(page: str, numbers: dict[str, Any]) -> str:
    """Return the page with its tables written anew."""
    for name, lines in (("plans", plan_lines(numbers)), ("smallest", smallest_lines(numbers))):
        begin, end = f"<!-- table: results/plans.json, {name} -->\n", f"<!-- end: {name} -->\n"
        before, rest = page.split(begin)
        page = before + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
    return page


def plan_lines(numbers: dict[str, Any]) -> list[str]:
    """Return the table of plans, one row per cohort and kind of server."""
    lines = [
        "| N | θ | γ | server | m, s; P, t; G | CONFIRM | bits | upload | all sent | all received "
        "| times less than SecAgg |",
        "| ---: | ---: | ---: | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in numbers["plans"]:
        for server in ("lying", "curious"):
            plan, cohort = (
                row[server],
                f"| {row['clients']:,} | {row['dropout']:g} | {row['colluding']:.3g} | {server} ",
            )
            if not plan["feasible"]:
                lines.append(f"{cohort}| not feasible | | | | | | |")
                continue
            lines.append(
                f"{cohort}| {_sizes(plan)}; {plan['committees']} | {'yes' if plan['confirm'] else 'no'} "
                f"| {plan['modulus_bits']} | {plan['upload_bytes']:,} | {plan['all_bytes_sent']:,} "
                f"| {plan['all_bytes_received']:,} | {plan['compression_vs_secagg']:.1f} |"
            )
    return lines


def smallest_lines(numbers: dict[str, Any]) -> list[str]:
    """Return the table of smallest groups."""
    lines = [
        "| N | θ | γ | excluded | with CONFIRM: m, s; P, t | without: m, s; P, t |",
        "| ---: | ---: | ---: | ---: | --- | --- |",
    ]
    lines += [
        f"| {row['clients']:,} | {row['dropout']:g} | {row['colluding']:g} | {row['excluded']:g} "
        f"| {_sizes(row['confirm'])} | {_sizes(row['no_confirm'])} |"
        for row in numbers["smallest"]
    ]
    return lines


def _sizes(groups: dict[str, Any]) -> str:
    return f"{groups['committee_size']}, {groups['min_survivors']}; {groups['pod_size']}, {groups['threshold']}"


if __name__ == "__main__":
    main()
