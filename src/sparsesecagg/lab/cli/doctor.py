"""`sparsesecagg doctor`: the three things that keep a Flower app from running on this machine, and what to change."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from sparsesecagg.cli.errors import EXIT_FAILED
from sparsesecagg.cli.shared import JsonOption, print_json, say
from sparsesecagg.errors import InvalidInput, install_command

OLDEST_FLOWER = (1, 41)
NO_INSTALLATION = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"


class Finding(NamedTuple):
    """One thing that was looked at, and what to change about it; nothing if all is well."""

    check: str
    found: str
    change: str = ""


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
    healthy = not any(finding.change for finding in findings)
    if json:
        rows = [finding._asdict() | {"ok": not finding.change} for finding in findings]
        print_json({"app": str(app), "healthy": healthy, "findings": rows})
    else:
        for check, found, change in findings:
            say(f"✗ {check}: {found}\n    → {change}" if change else f"✓ {check}: {found}")
    if not healthy:
        raise typer.Exit(EXIT_FAILED)


def _versions() -> Finding:
    try:
        flower = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        return Finding("versions", "Flower is not installed here", install_command("flower"))
    found = f"Flower {flower}, Python {sys.version_info.major}.{sys.version_info.minor}"
    old = tuple(int(part) for part in flower.split(".")[:2]) < OLDEST_FLOWER
    wanted = ".".join(map(str, OLDEST_FLOWER))
    return Finding("versions", found, f"pip install 'flwr[simulation]>={wanted},<2'" if old else "")


def _dependency(app: Path) -> Finding:
    """Tell whether Flower, which installs what an app asks for when it is run, would find this package."""
    try:
        read = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
        project, _ = read["project"], read["tool"]["flwr"]["app"]
        asked = [str(each) for each in project.get("dependencies", [])]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        folder = "the folder of a Flower app, whose pyproject.toml has [project] and [tool.flwr.app]"
        raise InvalidInput("app", f"must be {folder}, got {app}") from None
    if os.environ.get(NO_INSTALLATION) == "1":
        return Finding("dependency", f"{NO_INSTALLATION}=1: Flower uses what is installed here")
    wanted = next((each for each in asked if each.startswith("sparsesecagg")), None)
    origin = _installed_from()
    name = re.split("[ @<>=!~;]", wanted or "sparsesecagg[flower]")[0]  # With the extras that the app asks for.
    remedy = f'"{name} @ {origin or "file:///path/to/sparsesecagg"}" in its dependencies'
    if wanted is None:
        return Finding("dependency", "the app's pyproject.toml does not ask for sparsesecagg", remedy)
    if "@" not in wanted and origin is not None:
        found = f"the app asks for {wanted!r}, which is installed here from a folder and not from a package index"
        return Finding("dependency", found, f"{remedy}, or {NO_INSTALLATION}=1 for SuperLink and nodes")
    return Finding("dependency", f"the app asks for {wanted!r}")


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
    another = "name another: secagg-ledger in the node-config, SPARSESECAGG_LEDGER in a simulation"
    if not usable:
        return Finding("ledger", f"{folder} can't be written: {place} is not a folder of the node's own", another)
    if place != folder:
        return Finding("ledger", f"{folder} will be made")
    if os.name == "posix" and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        return Finding("ledger", f"{folder} is open to others", f"chmod 700 the folder, or {another}")
    return Finding("ledger", f"{folder} can be written")
