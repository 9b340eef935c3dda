"""Figures that prose states, taken from result files.

A page writes `<!-- = audit: audits[pattern=full,colluding=0].revealed_fraction; percent 1 -->0.0 %<!-- . -->`. What
stands between the two comments is replaced when pages are published, and a test compares it: a sentence can't keep a
figure that was measured anew. A path goes through keys and, in brackets, through lists: by place, or by what the wanted
entry has. A mark has no `|`, which would end the cell of a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments.common.results import ROOT

RESULTS = ROOT / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MARK = re.compile(r"<!-- = (?P<what>[^>]+?) -->(?P<text>[^<]*)<!-- \. -->")
_STEP = re.compile(r"(?P<key>[^.\[\]]+)|\[(?P<choice>[^\]]+)\]")


def filled(page: str, folder: Path = RESULTS) -> str:
    """Return the page with every marked figure as the result files have it."""
    return MARK.sub(lambda mark: f"<!-- = {mark['what']} -->{figure(mark['what'], folder)}<!-- . -->", page)


def figure(what: str, folder: Path = RESULTS) -> str:
    """Return one figure: `file: path; form`."""
    name, rest = what.split(":", 1)
    path, form = rest.split(";")
    value: Any = _read(folder / f"{name.strip()}.json")
    for step in _STEP.finditer(path.strip()):
        value = value[step["key"]] if step["key"] else _chosen(value, step["choice"])
    return str(_FORMS[form.split()[0]](value, *map(int, form.split()[1:])))


def _chosen(entries: list[Any], choice: str) -> Any:
    if choice.lstrip("-").isdigit():
        return entries[int(choice)]
    wanted = dict(part.split("=") for part in choice.split(","))
    (found,) = [one for one in entries if all(_same(one[key], value) for key, value in wanted.items())]
    return found


def _same(value: Any, wanted: str) -> bool:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return abs(value - float(wanted)) < 1e-3
    return str(value) == wanted


@lru_cache
def _read(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


_FORMS: Mapping[str, Any] = {
    "percent": lambda value, digits=0: f"{100 * value:.{digits}f} %",
    "fixed": lambda value, digits=1: f"{value:.{digits}f}",
    "count": lambda value: f"{value:,}",
    "times": lambda value, digits=1: f"{value:.{digits}f}×",
}
