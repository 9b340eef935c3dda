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
from sparsesecagg.lab.attacks import ATTACKS, Mode, Setting, run

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results" / "attacks.json", ROOT / "docs" / "threat-model.md"
COHORTS = ((60, 1 / 6, 0), (30, 0.2, 1), (120, 0.1, 2))
MODES: tuple[Mode, ...] = ("plain", "authenticated")
BEGIN, END = "<!-- table: results/attacks.json -->\n", "<!-- end: attacks -->\n"


def main() -> None:
    """Play, save, publish."""
    numbers = [
        {
            "clients": clients,
            "alpha": round(alpha, 4),
            "seed": seed,
            **run(attack, Setting(clients, alpha, mode, seed)).as_json(),
        }
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
    """Return the checklist: one row per attack and mode, over all cohorts."""
    rows = ["| promise | mode | promised | attack | read | control read |", "| --- | --- | --- | --- | ---: | ---: |"]
    played: dict[tuple[str, str], list[dict[str, Any]]] = {(row["name"], row["mode"]): [] for row in numbers}
    for row in numbers:
        played[row["name"], row["mode"]].append(row)
    for (name, mode), found in sorted(played.items(), key=lambda item: (list(ATTACKS).index(item[0][0]), item[0][1])):
        promised = "yes" if found[0]["promised"] else "**no**"
        read = ", ".join(str(row["values_read"]) for row in found)
        control = ", ".join(str(row["control_values_read"]) for row in found)
        rows.append(
            f"| {found[0]['promise']} | {mode} | {promised} | `{name}`: {found[0]['lie']} | {read} | {control} |"
        )
    return rows


if __name__ == "__main__":
    main()
