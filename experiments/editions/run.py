"""Compare the editions of the protocol by the accuracy that they end at; write results/editions.json and its tables.

    git worktree add FIRST 7335955
    PYTHONPATH=FIRST/src python experiments/editions/measure.py first > first.jsonl
    PYTHONPATH=src:. python experiments/editions/measure.py second > second.jsonl
    PYTHONPATH=src:. python -m experiments.editions.run first.jsonl second.jsonl SECOND_COMMIT

Accuracies do not depend on the machine, up to the last bits of its linear algebra.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.editions.measure import DROPOUT, LAST, SEEDS, SETTINGS, STRETCHES

ROOT = Path(__file__).parents[2]
RESULTS, DOCUMENT = ROOT / "results" / "editions.json", ROOT / "docs" / "training.md"
END = "<!-- end -->\n"
FIRST = "7335955"

COLUMNS = {
    "SecAgg, first edition": ("first", "secagg"),
    "committee, first edition": ("first", "committee"),
    "SecAgg": ("second", "secagg"),
    "committee": ("second", "committee"),
    "committee, steps of 4 bits down": ("second", "committee, steps"),
    f"committee, {STRETCHES} stretches per slice": ("second", f"committee, {STRETCHES} stretches"),
}


def main(first: Path, second: Path, commit: str) -> None:
    """Put the measurements together, save and publish them."""
    runs = [json.loads(line) for path in (first, second) for line in path.read_text("utf-8").splitlines()]
    # Only settings whose runs are all there; the others are measured another time.
    settings = {name: options for name, options in SETTINGS.items() if complete(runs, name)}
    result = {
        "command": "see experiments/editions/run.py",
        "commits": {"first": FIRST, "second": commit},
        "seeds": list(SEEDS),
        "configuration": {"settings": settings, "dropout": DROPOUT, "last_rounds": LAST},
        "runs": [run for run in runs if run["setting"] in settings],
    }
    RESULTS.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    DOCUMENT.write_text(published(DOCUMENT.read_text(encoding="utf-8"), result), encoding="utf-8")


def complete(runs: list[dict[str, Any]], setting: str) -> bool:
    """Tell whether every system of both editions that is compared was run with every seed."""
    return all(
        len(accuracies({"runs": runs}, setting, edition, system)) == len(SEEDS)
        for edition, system in COLUMNS.values()
        if "stretches" not in system or "shards" in setting
    )


def accuracies(result: dict[str, Any], setting: str, edition: str, system: str) -> list[float]:
    """Return the accuracy of each seed, in percent."""
    return [
        run["accuracy"]
        for run in result["runs"]
        if (run["setting"], run["edition"], run["system"]) == (setting, edition, system)
    ]


def table(result: dict[str, Any]) -> str:
    """Return the mean over the seeds, with the least and the greatest, by setting and system."""
    settings = result["configuration"]["settings"]
    lines = [f"| | {' | '.join(settings)} |", f"| --- | {' | '.join(['---:'] * len(settings))} |"]
    for name, (edition, system) in COLUMNS.items():
        cells = []
        for setting in settings:
            found = accuracies(result, setting, edition, system)
            cells.append(f"{fmean(found):.1f} % ({min(found):.1f} to {max(found):.1f})" if found else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def published(document: str, result: dict[str, Any]) -> str:
    """Return the document with its table as the result has it."""
    mark = "<!-- table: results/editions.json -->\n"
    before, rest = document.split(mark)
    return before + mark + table(result) + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
