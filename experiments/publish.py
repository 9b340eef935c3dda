"""Write the tables of docs/reproduction.md from the result files alone, and draw the plots again.

.venv/bin/python -m experiments.publish
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.common import results
from experiments.common.experiment import NAMES, load

RESULTS, DOCUMENT = results.ROOT / "results", results.ROOT / "docs" / "reproduction.md"
END = "<!-- end -->\n"


def main() -> None:
    """Publish every result file that there is."""
    for name in NAMES:
        path = RESULTS / f"{name}.json"
        if path.exists():
            load(name).plot(results.read(path), RESULTS / "plots")
    DOCUMENT.write_text(published(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


def published(document: str, folder: Path = RESULTS) -> str:
    """Return the document with every marked table replaced by that of its result file."""
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
    if not path.exists():
        return "\nNot measured yet.\n\n"
    result = results.read(path)
    lines = ["| | paper | ours | note |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in load(name).compare(result)
    ]
    return "\n" + "\n".join(lines) + "\n\n" + provenance(result) + "\n\n"


def provenance(result: Mapping[str, Any]) -> str:
    """Return how the figures came about."""
    machine = result["machine"]
    state = "" if result["complete"] else " **Not complete**: the same command goes on."
    return (
        f"`{result['command']}`, commit {result['commit']}, {result['date']}, {machine['cores']} cores of "
        f"{machine['processor']}, Python {machine['python']}.{state}"
    )


if __name__ == "__main__":
    main()
