"""Write the tables of docs/reproduction.md from the result files alone, the figures that prose states on all pages,
and draw the plots again.

.venv/bin/python -m experiments.publish
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments import figures_in_prose
from experiments.claims import page
from experiments.common import results
from experiments.common.experiment import NAMES, load
from sparsesecagg.errors import InvalidInput

RESULTS, DOCUMENT = results.ROOT / "results", results.ROOT / "docs" / "reproduction.md"
END = "<!-- end -->\n"


def main() -> None:
    """Publish every result file that there is; one that can't be repeated, from a tree with changes, is refused."""
    for name in NAMES:
        path = RESULTS / f"{name}.json"
        if path.exists() and is_current(result := results.read(path)):
            require_repeatable(result)
            load(name).plot(result, RESULTS / "plots")
    DOCUMENT.write_text(published(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    for path in figures_in_prose.PAGES:
        path.write_text(figures_in_prose.filled(path.read_text(encoding="utf-8")), encoding="utf-8")


def require_repeatable(result: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for a result that no commit stands for."""
    if not result["commit"] or result["commit"].endswith("+"):
        raise InvalidInput(
            "commit", f"of results/{result['name']}.json must be a clean one, got {result['commit']}: measure again"
        )


def is_current(result: Mapping[str, Any]) -> bool:
    """Tell whether a result is of this version of the protocol; those of version 1 do not describe their data."""
    return "data" in result


def published(document: str, folder: Path = RESULTS) -> str:
    """Return the document with the summary, and with every marked table replaced by that of its result file."""
    if page.BEGIN in document:
        before, rest = document.split(page.BEGIN)
        document = before + page.BEGIN + page.summary(folder) + page.END + rest.split(page.END, 1)[1]
    for name in NAMES:
        begin = f"<!-- table: results/{name}.json -->\n"
        if begin in document:
            before, rest = document.split(begin)
            after = rest.split(END, 1)[1]
            document = before + begin + section(name, folder) + END + after
    return document


def section(name: str, folder: Path = RESULTS) -> str:
    """Return the comparison of one experiment and where it comes from, as Markdown."""
    path = folder / f"{name}.json"
    if not path.exists() or not is_current(result := results.read(path)):
        return "\nNot measured yet with this version of the protocol.\n\n"
    lines = ["| | paper | ours | note |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in load(name).compare(result)
    ]
    return "\n" + "\n".join(lines) + "\n\n" + provenance(result) + "\n\n"


def provenance(result: Mapping[str, Any]) -> str:
    """Return how the figures came about."""
    machine = result["machine"]
    state = "" if result["complete"] else " **Not complete**: the same command resumes it."
    return (
        f"`{result['command']}`, commit {result['commit']}, {result['date']}, {machine['cores']} cores of "
        f"{machine['processor']}, Python {machine['python']}{_load(machine)}.{_measured_on(result)}{state}"
    )


def _load(machine: Mapping[str, Any]) -> str:
    return f", load {machine['load_before']:g} before it began" if "load_before" in machine else ""


def _measured_on(result: Mapping[str, Any]) -> str:
    """Return the seeds and the data."""
    seeds, data = result["seeds"], result["data"]
    which = f"Seed {seeds[0]}" if len(seeds) == 1 else f"Seeds {seeds[0]} to {seeds[-1]}"
    if data["sha256"] is None:
        return f" {which}."
    return f" {which}. Data: {data['name']}, SHA-256 {data['sha256'][:16]}…, {data['note']}."


if __name__ == "__main__":
    main()
