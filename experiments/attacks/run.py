"""Play every attack, write results/attacks.json, and the checklist of docs/threat-model.md from it.

    .venv/bin/python -m experiments.attacks.run

The numbers depend on the seeds alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.common.results import commit
from sparsesecagg import __version__
from sparsesecagg.lab.attacks import ATTACKS, MODES, Setting, run

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results" / "attacks.json", ROOT / "docs" / "threat-model.md"
COHORTS = ((13, 0.3, 1), (16, 0.1, 2))
"""Users, α and seed."""
BEGIN, END = "<!-- table: results/attacks.json -->\n", "<!-- end: attacks -->\n"


def main() -> None:
    """Play, save, publish."""
    numbers = [
        {"clients": clients, "alpha": alpha, "seed": seed, **run(attack, Setting(clients, alpha, mode, seed)).as_json()}
        for clients, alpha, seed in COHORTS
        for mode in MODES
        for attack in ATTACKS.values()
        if mode in attack.modes
    ]
    result = {
        "command": "python -m experiments.attacks.run",
        "version": __version__,
        "commit": commit(),
        "numbers": numbers,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(publish(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")


def publish(page: str, numbers: list[dict[str, Any]]) -> str:
    """Return the page with its checklist written anew."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n".join(lines(numbers)) + "\n" + END + rest.split(END, 1)[1]


def lines(numbers: list[dict[str, Any]]) -> list[str]:
    """Return the checklist: one row per promise, both modes as columns, counts over all cohorts."""
    rows = ["| promise | attack | plain | authenticated |", "| --- | --- | --- | --- |"]
    for name in dict.fromkeys(row["name"] for row in numbers):
        found = [row for row in numbers if row["name"] == name]
        cells = [cell([row for row in found if row["mode"] == mode]) for mode in MODES]
        rows.append(f"| {found[0]['promise']} | `{name}`: {found[0]['lie']} | {' | '.join(cells)} |")
    return rows


def cell(found: list[dict[str, Any]]) -> str:
    """Return whether a mode promises it, what was read, and what the control read."""
    if not found:
        return "–"
    read, control = (", ".join(str(row[key]) for row in found) for key in ("values_read", "control_values_read"))
    return f"{'yes' if found[0]['promised'] else '**no**'}: {read} ({control})"


if __name__ == "__main__":
    main()
