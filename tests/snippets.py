"""Snippets of the documentation: what they are, and how a page says that one is not to be run as it stands.

Python in fences runs page by page, in the order of the page, in one namespace: a page is a program. Commands are the
lines of indented blocks and `sh` fences that begin with a program's name. A comment above a block changes that:

    <!-- snippet: not run, REASON -->        for what can't run in a test
    <!-- snippet: with --rounds 1 -->        options that make commands quick; the last of two equal options counts
    <!-- snippet setup
    x = 1
    -->                                      Python that the reader has and the test has not
"""

from __future__ import annotations

import re
import shlex
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "docs/reference/*.md")
    for path in ROOT.glob(pattern)
)
PROGRAMS = ("sparsesecagg", "python", ".venv/bin/python", ".venv/bin/sparsesecagg", "make", "pip", "flwr")
PROGRAMS += ("flower-superlink", "flower-supernode")
_FENCE = re.compile(r"^```(\w*)\s*$")
_MARK = re.compile(r"^<!-- snippet: (not run, .+|with .+?) -->$")


@dataclass
class Snippet:
    """One block of code of a page."""

    page: str
    line: int
    kind: str
    """python or sh."""
    code: str
    setup: str = ""
    reason: str = ""
    """Why it is not run."""
    options: list[str] = field(default_factory=list)
    """What the test adds to each command."""

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[list[str]]:
        """Return the commands of a block as words, without what the reader is told beside them."""
        lines = self.code.replace("\\\n", " ").splitlines()
        found = []
        for line in lines:
            if line.split(maxsplit=1)[:1] and line.split(maxsplit=1)[0] in PROGRAMS:  # Not what a program prints.
                found.append(shlex.split(line, comments=True))
        return found


def snippets_of(page: str) -> list[Snippet]:
    """Return the snippets of a page, in order."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    found: list[Snippet] = []
    setup, mark, place = "", "", 0
    while place < len(lines):
        line = lines[place]
        if line.startswith("<!-- snippet setup"):
            end = lines.index("-->", place)
            setup, place = "\n".join(lines[place + 1 : end]), end + 1
            continue
        if line.startswith("<!-- snippet"):
            match = _MARK.match(line)
            if match is None:
                raise ValueError(f"{page}:{place + 1}: {line} is not a mark that tests/snippets.py knows")
            mark, place = match[1], place + 1
            continue
        fence, indented = _FENCE.match(line), _is_command(lines, place)
        if fence or indented:
            start = place + 1 if fence else place
            end = lines.index("```", start) if fence else _end_of_block(lines, place)
            kind = {"": "", "bash": "sh", "console": "sh"}.get(fence[1], fence[1]) if fence else "sh"
            if kind in ("python", "sh"):
                found.append(_snippet(page, start, kind, lines[start:end], setup, mark))
            setup, mark, place = "", "", end + 1 if fence else end
            continue
        place += 1
    return found


def _snippet(page: str, start: int, kind: str, lines: list[str], setup: str, mark: str) -> Snippet:
    code = "\n".join(lines)
    snippet = Snippet(page, start + 1, kind, textwrap.dedent(code) if kind == "sh" else code, setup)
    if mark.startswith("not run, "):
        snippet.reason = mark.removeprefix("not run, ")
    elif mark:
        snippet.options = shlex.split(mark.removeprefix("with "))
    return snippet


def _is_command(lines: list[str], place: int) -> bool:
    """Tell whether an indented block of commands begins here: behind an empty line, a mark or a heading."""
    line = lines[place]
    first = not place or not lines[place - 1].strip() or lines[place - 1].startswith("<!-- snippet")
    return first and line.startswith("    ") and line.split()[0] in PROGRAMS


def _end_of_block(lines: list[str], place: int) -> int:
    while place < len(lines) and (lines[place].startswith("    ") or not lines[place].strip()):
        place += 1
    return place
