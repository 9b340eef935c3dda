"""`sparsesecagg doctor`: the three things that keep a Flower app from running on this machine, and what to change."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from sparsesecagg.cli.errors import EXIT_FAILED
from sparsesecagg.cli.shared import JsonOption, print_json, say
from sparsesecagg.errors import InvalidInput, install_command

OLDEST_FLOWER = (1, 41)
NO_INSTALLATION = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    ok: bool
    found: str
    change: str = ""
    """What to do about it; nothing if all is well."""


def doctor(
    app: Annotated[
        Path, typer.Argument(metavar="[APP]", help="The folder of the app, with its pyproject.toml.")
    ] = Path(),
    json: JsonOption = False,
) -> None:
    """Check Flower's version, the app's dependency on this package, and the ledger's folder.

    Nothing of the app is run. Exits 0 if all is well, 1 if something must be changed, 2 if there is no app.
    """
    findings = [_versions(), _dependency(app), _ledger()]
    wrong = [finding for finding in findings if not finding.ok]
    if json:
        print_json({"app": str(app), "healthy": not wrong, "findings": [vars(finding) for finding in findings]})
    else:
        for finding in findings:
            say(f"{'✓' if finding.ok else '✗'} {finding.check}: {finding.found}")
            if finding.change:
                say(f"    → {finding.change}")
    if wrong:
        raise typer.Exit(EXIT_FAILED)


def _versions() -> Finding:
    try:
        flower = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        return Finding("versions", False, "Flower is not installed here", install_command("flower"))
    found = f"Flower {flower}, Python {sys.version_info.major}.{sys.version_info.minor}"
    if tuple(int(part) for part in flower.split(".")[:2]) < OLDEST_FLOWER:
        wanted = ".".join(map(str, OLDEST_FLOWER))
        return Finding("versions", False, found, f"pip install 'flwr[simulation]>={wanted},<2'")
    return Finding("versions", True, found)


def _dependency(app: Path) -> Finding:
    """Tell whether Flower, which installs what an app asks for when it is run, would find this package."""
    try:
        project = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
        asked = [str(each) for each in project["project"].get("dependencies", [])]
    except (OSError, tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError):
        raise InvalidInput("app", f"must be the folder of a Flower app with its pyproject.toml, got {app}") from None
    if os.environ.get(NO_INSTALLATION) == "1":
        return Finding("dependency", True, f"{NO_INSTALLATION}=1: Flower uses what is installed here")
    wanted = next((each for each in asked if each.startswith("sparsesecagg")), None)
    origin = _installed_from()
    name = re.split("[ @<>=!~;]", wanted or "sparsesecagg[flower]")[0]  # With the extras that the app asks for.
    remedy = f'"{name} @ {origin or "file:///path/to/sparsesecagg"}" in its dependencies'
    if wanted is None:
        return Finding("dependency", False, "the app's pyproject.toml does not ask for sparsesecagg", remedy)
    if "@" not in wanted and origin is not None:
        found = f"the app asks for {wanted!r}, which is installed here from a folder and not from a package index"
        return Finding("dependency", False, found, f"{remedy}, or {NO_INSTALLATION}=1 for SuperLink and nodes")
    return Finding("dependency", True, f"the app asks for {wanted!r}")


def _installed_from() -> str | None:
    """Return where this package was installed from; None if that was an index, or if it runs from its source."""
    try:
        text = metadata.distribution("sparsesecagg").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    return str(json.loads(text)["url"]) if text else None


def _ledger() -> Finding:
    """Tell whether a node on this machine could write its ledger; nothing is made for that."""
    named = os.environ.get("SPARSESECAGG_LEDGER")
    folder = Path(named) if named else Path.home() / ".sparsesecagg" / "ledger"
    place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    usable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    if place != folder and usable:
        return Finding("ledger", True, f"{folder} will be made")
    if place != folder:
        change = "name another: secagg-ledger in the node-config, SPARSESECAGG_LEDGER in a simulation"
        return Finding("ledger", False, f"{folder} can't be made in {place}", change)
    if usable and not (os.name == "posix" and stat.S_IMODE(folder.stat().st_mode) & 0o077):
        return Finding("ledger", True, f"{folder} can be written")
    problem = "is open to others" if usable else "is not a folder that can be written"
    return Finding("ledger", False, f"{folder} {problem}", "chmod 700 the folder, or name another one")
