"""Every file that a page names is there: pages outlive moves otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "sparsesecagg"
BASES = (ROOT, PACKAGE, PACKAGE / "lab", ROOT / "tests", ROOT / "docs", ROOT / "examples")
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
    ROOT / "vectors/README.md",
]
NAMED = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|json|md|toml|ipynb))(?:::\w+)?`")
PLACEHOLDERS = {"results/NAME.json"}


def missing(text: str) -> list[str]:
    """Return the files that a text names and that are nowhere."""
    names = set(NAMED.findall(text)) - PLACEHOLDERS
    return sorted(name for name in names if not any((base / name).exists() for base in BASES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


def test_a_file_that_moved_would_be_found() -> None:
    assert missing("see `engines/flower/mod.py` and `protocol/client.py`") == ["engines/flower/mod.py"]
