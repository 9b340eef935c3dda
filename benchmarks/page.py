"""docs/performance.md: prose from performance.md.in, every number and plot from results/.

    python -m benchmarks.page

A place in the template is `{{ result : path | format }}`, as in `{{ threads : speedup | .2f }}`. Without a colon it is
a table: `{{ whole }}`, `{{ deployment }}`, `{{ costs result }}`, `{{ ratios result }}`, `{{ profile }}`,
`{{ scale }}`, `{{ authenticated }}` or `{{ provenance }}`. What stands between `{{ with result … }}` and `{{ end }}` is
left out as long as one of these results is missing; anywhere else a missing result is an error, so that no number is
shown that no committed file contains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import authenticated, plots, profiling, results
from benchmarks.systems import NAMES

TEMPLATE = Path(__file__).resolve().parent / "performance.md.in"
DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "performance.md"
FIGURES = {
    "performance-users.svg": ["upload_clients", "server_clients"],
    "performance-model.svg": ["upload_dim", "server_dim"],
}
_PLACE = re.compile(r"\{\{\s*(.+?)\s*\}\}")
_SECTION = re.compile(r"\{\{ with (.+?) \}\}\n(.*?)\{\{ end \}\}\n", re.DOTALL)
_SCALES = {"ms": (1e3, ",.1f", " ms"), "seconds": (1, ",.1f", " s"), "kB": (1e-3, ",.1f", " kB")} | {
    "MB": (1e-6, ",.0f", " MB"),
    "GB": (1e-9, ",.2f", " GB"),
    "us": (1e6, ",.0f", " µs"),
    "percent": (100, ".0f", " %"),
}
_ROWS = {
    "plain": "plain FedAvg",
    "sliced_steps": "sliced, steps down",
    "sliced_covered": "sliced, covered steps down",
} | NAMES
_SIDES = {"client_upload": "client, UPLOAD", "server": "server"}


def write(directory: Path | None = None, docs: Path = DOCS) -> Path:
    """Write the page and the plots whose results are there; return the page's path."""
    page = docs / PAGE.name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(TEMPLATE.read_text(), directory))
    if results.exists("growth", directory):
        for name, sweeps in FIGURES.items():
            plots.draw_growth(results.read("growth", directory), sweeps, docs / "img" / name)
    return page


def render(template: str, directory: Path | None = None) -> str:
    """Fill every place of the template."""

    def section(found: re.Match[str]) -> str:
        return found.group(2) if all(results.exists(name, directory) for name in found.group(1).split()) else ""

    return _PLACE.sub(lambda place: _fill(place.group(1), directory), _SECTION.sub(section, template))


def _fill(place: str, directory: Path | None) -> str:
    if ":" not in place:
        kind, *names = place.split()
        return _TABLES[kind](*(results.read(name, directory) for name in names or [kind] if name != "provenance"))
    name, _, rest = place.partition(":")
    path, _, form = rest.partition("|")
    value: Any = results.read(name.strip(), directory)
    for key in path.strip().split("."):
        value = value[key]
    return _formatted(value, form.strip())


def _formatted(value: Any, form: str) -> str:
    if value is None:
        return "–"
    if form in _SCALES:
        factor, spec, unit = _SCALES[form]
        return f"{factor * value:{spec}}{unit}"
    return f"{value:{form}}"


def _whole(result: dict[str, Any]) -> str:
    rows = [
        (
            f"{int(size):,}",
            _ROWS[system],
            *(_formatted(one[f"{way}_bytes"], "kB") for way in ("sent", "received", "total")),
            str(one["exchanges"]),
            *(_formatted(one.get(f"{side}_seconds"), "ms") for side in ("client", "server")),
        )
        for size, systems in result["sizes"].items()
        for system, one in systems.items()
    ]
    return _markdown(("users", "", "up", "down", "in all", "exchanges", "client", "server"), rows)


def _deployment(*found: dict[str, Any]) -> str:
    rows = [
        (name, f"{one['exchanges']:g}", f"{one['seconds']:.1f} s", f"{one['ratio']:.2f}×")
        for name, one in {key: row for result in reversed(found) for key, row in result["rows"].items()}.items()
    ]
    return _markdown(("", "exchanges", "a round", "against plain FedAvg"), rows)


def costs(result: dict[str, Any]) -> str:
    """Return a table of what each system takes: medians of the mean client and of the whole server."""
    rows = [
        (
            NAMES[system],
            str(one["settings"]["modulus_bits"]),
            _formatted(one["client_seconds"]["UPLOAD"], "ms"),
            *(_formatted(one[f"{side}_seconds"]["total"], "ms") for side in ("client", "server")),
            *(_formatted(one[f"{way}_bytes"], "kB") for way in ("sent", "received")),
            _formatted(one["peak_memory_bytes"], "MB"),
        )
        for system, one in result["systems"].items()
    ]
    return _markdown(("", "bits", "UPLOAD", "client", "server", "sent", "received", "peak memory"), rows)


def ratios(*found: dict[str, Any]) -> str:
    """Return a table of how many times less each system takes than another."""
    against = {"flower": NAMES["flower_secagg_plus"], "secagg": NAMES["secagg"]}
    rows = [
        (
            f"{NAMES[system]}, {result['systems'][system]['settings']['modulus_bits']} bits",
            against[base],
            *(f"{ratio[key]:,.1f}×" for key in ("client", "client_upload", "server", "sent_bytes")),
        )
        for result in found
        for base, others in result["ratios"].items()
        for system, ratio in others.items()
    ]
    return _markdown(("", "less than", "client", "UPLOAD", "server", "bytes sent"), rows)


def _profile(result: dict[str, Any]) -> str:
    columns = [(system, side) for system in result["systems"] for side in profiling.SIDES]
    groups = [*profiling.GROUPS, "other"]
    rows = [
        (group, *(_formatted(result["systems"][system][side].get(group, 0.0), "percent") for system, side in columns))
        for group in groups
    ]
    for key, text in (("seconds", "processor time"), ("floor", "floor: agreements and key streams alone")):
        rows.append((text, *(_formatted(result["systems"][system][key][side], "ms") for system, side in columns)))
    return _markdown(("", *(f"{NAMES[system]}: {_SIDES[side]}" for system, side in columns)), rows)


def _scale(*found: dict[str, Any]) -> str:
    rows = [
        (
            f"{int(clients):,}",
            f"{one['users_simulated']:,}",
            f"{one['groups']:,}",
            _formatted(one["client_seconds"], "ms"),
            _formatted(one["server_seconds"], "ms"),
            *(_formatted(one[f"{way}_bytes"], "kB") for way in ("sent", "received")),
            _formatted(one["peak_memory_bytes"], "GB"),
        )
        for result in found
        for clients, one in result["cohorts"].items()
    ]
    heading = ("users", "simulated", "groups", "client", "server, per user", "sent", "received", "peak memory")
    return _markdown(heading, rows)


def _authenticated(result: dict[str, Any]) -> str:
    rows = []
    for name, text in authenticated.NAMES.items():
        cells = []
        for side in authenticated.SIDES:
            ratio = result[f"{side}_ratios"][name]
            cells.append(f"{_formatted(result[f'{side}_seconds'][name], 'ms')} ({ratio:.2f}×)")
        rows.append((text, *cells))
    return _markdown(("", *authenticated.SIDES), rows)


def _provenance() -> str:
    """Say of which commit each file is, and whether the machine had anything else to do."""
    rows = []
    for name in results.names():
        one = results.read(name)
        machine = one["machine"]
        quiet = "yes" if machine["quiet"] else "**no**"
        versions = f"Python {machine['python']}, NumPy {machine['numpy']}, cryptography {machine['cryptography']}"
        processor = f"{machine['cores']} × {machine['processor']}"
        rows.append((name, str(one["commit"]), f"{machine['load_before']:.1f}", quiet, processor, versions))
    if not rows:
        return "Nothing yet."
    return _markdown(("file", "commit", "load before", "quiet", "processor", "versions"), rows)


def _markdown(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heading = list(heading)
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


_TABLES: dict[str, Callable[..., str]] = {
    "whole": _whole,
    "deployment": _deployment,
    "costs": costs,
    "ratios": ratios,
    "profile": _profile,
    "scale": _scale,
    "authenticated": _authenticated,
    "provenance": _provenance,
}

if __name__ == "__main__":
    write()
