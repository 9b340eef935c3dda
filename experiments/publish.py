"""Write the pages of the reproduction, the table of docs/weakness.md, and the figures in the prose of all pages.

Draws the plots again, too.

.venv/bin/python -m experiments.publish
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments import figures_in_prose
from experiments.claims import appendix, weakness
from experiments.claims.page import published
from experiments.common import results
from experiments.common.experiment import NAMES, load
from sparsesecagg.errors import InvalidInput

DOCS, RESULTS = results.ROOT / "docs", results.ROOT / "results"
DOCUMENT, WEAKNESS = DOCS / "reproduction.md", DOCS / "weakness.md"


def main() -> None:
    """Publish every result file that there is; one that can't be repeated, from a tree with changes, is refused."""
    for path in sorted(RESULTS.glob("*.json")):
        require_repeatable(path.stem, results.read(path))
    for name in NAMES:
        path = RESULTS / f"{name}.json"
        if path.exists():
            load(name).plot(results.read(path), RESULTS / "plots")
    rewrite(DOCUMENT, published(DOCUMENT.read_text(encoding="utf-8"), RESULTS))
    for name, text in appendix.pages(RESULTS).items():
        rewrite(DOCS / name, text)
    rewrite(WEAKNESS, weakness.published(WEAKNESS.read_text(encoding="utf-8")))
    for page in figures_in_prose.PAGES:
        rewrite(page, figures_in_prose.filled(page.read_text(encoding="utf-8")))


def rewrite(path: Path, text: str) -> None:
    """Write a page if it has changed."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def require_repeatable(name: str, result: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for a result that no commit stands for, in whole or for one of its parts."""
    commits = list(_commits(result))
    for commit in commits or [None]:
        if not results.clean(commit):
            raise InvalidInput("commit", f"of results/{name}.json must be a clean one, got {commit}: measure again")


def _commits(result: Any) -> Iterator[str | None]:
    parts = result.items() if isinstance(result, Mapping) else enumerate(result) if isinstance(result, list) else ()
    for key, part in parts:
        yield from (part,) if key == "commit" else _commits(part)


if __name__ == "__main__":
    main()
