"""Whatever a page names is there: files, options, metrics, settings, names of the code, anchors."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from sparsesecagg.lab.cli import whole_program

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
SOURCES = {".py", ".toml", ".yml"}
PLACEHOLDERS = {"results/NAME.json", "build/notes.md"}
"""The latter is what `make release` writes."""
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OTHER_PROGRAMS = re.compile(
    r"^\s*(?:flwr|flower-\w+|pip|git|ssh-keygen|pytest|python|\.venv/bin/python|npx|chromium)\b"
)
OTHER_OPTIONS = {
    *("--federation-config", "--node-config", "--strict", "--no-deps", "--ssl-certfile", "--root-certificates"),
    *("--enable-supernode-auth", "--auth-supernode-private-key", "--ssl-ca-certfile", "--ssl-keyfile", "--insecure"),
}
OTHER_NAMES = {"from_pretrained"}
"""Of other programs and packages, named in the middle of a sentence."""


def missing(text: str) -> list[str]:
    """Return the files that a text names and that are nowhere."""
    names = set(NAMED.findall(text)) - PLACEHOLDERS
    return sorted(name for name in names if not any((base / name).exists() for base in BASES))


@cache
def options() -> frozenset[str]:
    """Return every option of every command."""

    def walk(command: Any) -> set[str]:
        found = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
        return found.union(*(walk(below) for below in getattr(command, "commands", {}).values()))

    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py"))
    return frozenset(walk(get_command(whole_program())) | {"--help"} | set(re.findall(r'"(--[a-z-]+)"', scripts)))


def unknown_options(text: str) -> list[str]:
    """Return the options in code that no command of ours has."""
    text = text.replace("\\\n", " ")
    lines = [*CODE.findall(text), *(line for line in text.splitlines() if line.startswith("    "))]
    ours = [line for line in lines if not OTHER_PROGRAMS.match(line)]
    found = {word for line in ours for word in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", line)}
    return sorted(found - options() - OTHER_OPTIONS)


@cache
def words_of_the_source() -> frozenset[str]:
    """Return every name that stands in code, and every hyphenated word in it."""
    folders = ("src", "tests", "experiments", "benchmarks", "vectors", "examples", ".github")
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in SOURCES]
    text = "\n".join(path.read_text(encoding="utf-8") for path in [*files, ROOT / "pyproject.toml", ROOT / "Makefile"])
    text += " ".join(path.stem for path in (ROOT / "vectors").rglob("*.json"))
    return frozenset(re.findall(r"\w+", text)) | frozenset(re.findall(r"\w+(?:-\w+)+", text))


def unknown_names(text: str) -> list[str]:
    """Return the names with an underscore, and the settings of nodes, that the source does not have."""
    code = " ".join(word for word in CODE.findall(text) if "/" not in word)
    names = set(re.findall(r"\b[A-Za-z]\w*_\w*[A-Za-z0-9]\b(?!_?…)", code)) | set(
        re.findall(r"\bsecagg-[a-z0-9-]+[a-z0-9]\b", code)
    )
    return sorted(names - words_of_the_source() - OTHER_NAMES)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as code hosts and the site make them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL), re.M)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}


def broken_anchors(page: Path) -> list[str]:
    """Return the links of a page that lead to no heading."""
    links = re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text(encoding="utf-8"))
    return [
        f"{path}#{anchor}"
        for path, anchor in links
        if (path or page.name).endswith(".md") and anchor not in anchors(page.parent / path if path else page)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert missing(text) == []
    assert unknown_options(text) == []
    assert unknown_names(text) == []
    assert broken_anchors(page) == []
    assert re.findall(r"\[[\w/-]+\.md\]\(", text) == []  # Links say what they lead to, not in which file it is.


def test_what_moved_would_be_found(tmp_path: Path) -> None:
    assert missing("see `engines/flower/mod.py` and `protocol/client.py`") == ["engines/flower/mod.py"]
    assert unknown_options(
        "`--jury-size 3`\n\n    sparsesecagg plan --jury 2 --alpha 1\n    pip install --no-jury ."
    ) == [
        "--jury",
        "--jury-size",
    ]
    assert unknown_names("`secagg-{0}-bytes`, `secagg-ledger`, `result.{0}_of`, `secure_sum`".format("jury")) == [
        "jury" + "_of",  # Else this file would have it.
        "secagg-jury" + "-bytes",
    ]
    page = tmp_path / "page.md"
    page.write_text("# A head, and more\n[here](#a-head-and-more) [not here](page.md#a-tail)", encoding="utf-8")
    assert broken_anchors(page) == ["page.md#a-tail"]
