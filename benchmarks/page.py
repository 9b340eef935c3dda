"""docs/performance.md: prose from performance.md.in, every number and plot from results/.

    python -m benchmarks.page

A place in the template is `{{ result : path | format }}`, as in `{{ limits : aes_256_ctr.bytes_per_second | GB }}`. A
place without a colon is a table: `{{ whole }}`, `{{ costs result }}`, `{{ ratios result }}`, `{{ claims }}`,
`{{ steps }}`, `{{ exponents }}`, `{{ limits }}` or `{{ provenance }}`. A result that is missing is an error: no number
is shown that no committed file contains. Only what stands between `{{ with result … }}` and `{{ end }}` is left out
as long as one of these results is missing: it takes long to measure, or needs an extra.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import claims, plots, profiling, results
from benchmarks.table import NAMES
from sparsesecagg.protocol.parameters import VERSION

TEMPLATE = Path(__file__).resolve().parent / "performance.md.in"
DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "performance.md"
_PLACE = re.compile(r"\{\{\s*(.+?)\s*\}\}")
_SECTION = re.compile(r"\{\{ with (.+?) \}\}\n(.*?)\{\{ end \}\}\n", re.DOTALL)
_SCALES = {"ms": (1e3, ",.1f", " ms"), "seconds": (1, ",.1f", " s"), "kB": (1e-3, ",.1f", " kB")} | {
    "MB": (1e-6, ",.0f", " MB"),
    "GB": (1e-9, ",.2f", " GB"),
    "percent": (100, ".0f", " %"),
    "times": (1, ",.0f", "×"),
}
_CLIENT_SWEEPS = ["upload_dim", "upload_clients", "upload_fixed_share", "upload_alpha"]
_SIDES = ("client_seconds", "server_seconds")
_SERVER_SWEEPS = ["server_dim", "server_clients", "server_dropout"]


def write(directory: Path | None = None, docs: Path = DOCS) -> Path:
    """Write the page and its plots; return the page's path."""
    page = docs / PAGE.name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(TEMPLATE.read_text(), directory))
    image = docs / "img"
    plots.draw_comparison(results.read(claims.COMPARE_FLOWER, directory), image / "performance-flower.svg")
    plots.draw_comparison(results.read(claims.COMPARE_SECAGG, directory), image / "performance-secagg.svg")
    scaling = results.read(claims.SCALING, directory)
    plots.draw_sweeps(scaling, _CLIENT_SWEEPS, image / "performance-client-scaling.svg")
    plots.draw_sweeps(scaling, _SERVER_SWEEPS, image / "performance-server-scaling.svg")
    plots.draw_profile(results.read(profiling.RESULT, directory), image / "performance-profile.svg")
    return page


def render(template: str, directory: Path | None = None) -> str:
    """Fill every place of the template."""
    template = _SECTION.sub(lambda section: _section(section.group(1), section.group(2), directory), template)
    return _PLACE.sub(lambda place: _fill(place.group(1), directory), template)


def _section(names: str, text: str, directory: Path | None) -> str:
    """Return a section whose results are all there, otherwise nothing."""
    there = all(((directory or results.DIRECTORY) / f"{name}.json").is_file() for name in names.split())
    return text if there else ""


def _fill(place: str, directory: Path | None) -> str:
    if ":" in place:
        name, _, rest = place.partition(":")
        path, _, form = rest.partition("|")
        value: Any = results.read(name.strip(), directory)
        for key in path.strip().split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        return _formatted(value, form.strip())
    kind, *names = place.split()
    return _TABLES[kind](*(results.read(name, directory) for name in names), directory)


def _formatted(value: Any, form: str) -> str:
    if form in _SCALES:
        factor, spec, unit = _SCALES[form]
        return f"{factor * value:{spec}}{unit}"
    return f"{value:{form}}"


def _claims(directory: Path | None) -> str:
    rows = [(one.text, one.asked, one.measured, "yes" if one.holds else "**no**") for one in claims.claims(directory)]
    return _markdown(("claim", "asked", "measured", "holds"), rows)


def _whole(directory: Path | None) -> str:
    """What a user moves and waits for in a round, all of it: bytes from one file, wall clock from a deployment."""
    whole, deployed = results.read(claims.WHOLE, directory), results.read(claims.DEPLOYMENT, directory)
    names = {
        "plain": ("plain FedAvg", "plain_seconds_per_round"),
        "flower_secagg_plus": ("Flower's SecAgg+", "secagg_plus_seconds_per_round"),
        "committee": ("committee, whole models", None),
        "committee_steps": ("committee, steps", "seconds_per_round"),
    }
    rows = []
    for system, (name, wall) in names.items():
        if system not in whole["systems"]:
            continue
        one, seconds = whole["systems"][system], deployed.get(wall)
        rows.append(
            (
                name,
                _formatted(one["sent_bytes"], "kB"),
                _formatted(one["received_bytes"], "kB"),
                _formatted(one["total_bytes"], "kB"),
                f"{whole['ratios'][system]:,.1f}×",
                str(one["exchanges"]),
                *(_formatted(one[side]["total"], "ms") if side in one else "" for side in _SIDES),
                "" if seconds is None else _formatted(seconds, "seconds"),
            )
        )
    heading = ("", "up", "down, with the model", "in all", "against the last", "exchanges", "client", "server")
    return _markdown((*heading, "wall clock"), rows)


def _costs(result: dict[str, Any], _: Path | None) -> str:
    rows = [
        (
            NAMES[system],
            str(one["settings"]["modulus_bits"]),
            _formatted(one["client_seconds"]["SHARE_KEYS"], "ms"),
            _formatted(one["client_seconds"]["UPLOAD"], "ms"),
            _formatted(one["client_seconds"]["total"], "ms"),
            _formatted(one["server_seconds"]["total"], "ms"),
            _formatted(one["sent_bytes"], "kB"),
            _formatted(one["received_bytes"], "kB"),
            _formatted(one["peak_memory_bytes"], "MB"),
        )
        for system, one in result["systems"].items()
    ]
    heading = ("", "bits", "SHARE_KEYS", "UPLOAD", "client", "server", "sent", "received", "peak memory")
    return _markdown(heading, rows)


def _ratios(result: dict[str, Any], _: Path | None) -> str:
    keys = ("client", "client_upload", "server", "sent_bytes")
    against = {"flower": "Flower's SecAgg+", "secagg": "our SecAgg"}
    rows = [
        (NAMES[system], against[base], *(f"{ratio[key]:,.1f}×" for key in keys))
        for base, ratios in result["ratios"].items()
        for system, ratio in ratios.items()
    ]
    return _markdown(("", "less than", "client", "UPLOAD", "server", "bytes sent"), rows)


def _steps(directory: Path | None) -> str:
    """The way from Flower's SecAgg+ to the committee pattern in three steps, each with what it gives."""
    flower, words = results.read(claims.COMPARE_FLOWER, directory), results.read(claims.COMPARE_WORDS, directory)
    stops = (
        ("", flower["systems"]["flower_secagg_plus"]),
        ("engineering: the same protocol, written for speed", flower["systems"]["secagg"]),
        ("sparsity: committees, still 32-bit words", words["systems"]["committee"]),
        ("short words: 8 bits", flower["systems"]["committee"]),
    )
    rows = []
    for (_, before), (step, after) in pairwise(stops):
        factors = (
            before["client_seconds"]["total"] / after["client_seconds"]["total"],
            before["client_seconds"]["UPLOAD"] / after["client_seconds"]["UPLOAD"],
            before["server_seconds"]["total"] / after["server_seconds"]["total"],
            before["sent_bytes"] / after["sent_bytes"],
        )
        rows.append((step, *(f"{factor:,.1f}×" for factor in factors)))
    return _markdown(("step", "client", "UPLOAD", "server", "bytes sent"), rows)


def _exponents(directory: Path | None) -> str:
    rows = []
    for sweep in results.read(claims.SCALING, directory)["sweeps"].values():
        for system, series in sweep["series"].items():
            paper, first, last = sweep["paper_exponent"], series["points"][0], series["points"][-1]
            rows.append(
                (
                    sweep["title"],
                    f"{sweep['varied']} {first[0]:,g} … {last[0]:,g}",
                    NAMES[system],
                    f"{_formatted(first[1], 'ms')} … {_formatted(last[1], 'ms')}",
                    "" if series["exponent"] is None else f"{series['exponent']:.2f}",
                    "" if paper is None else f"{paper:g}",
                )
            )
    return _markdown(("", "varied", "system", "cost", "exponent", "paper"), rows)


def _limits(directory: Path | None) -> str:
    measured = results.read(claims.LIMITS, directory)["mask_expansion"]
    rows = [
        (
            f"{bits} bits",
            _formatted(one["bytes_per_second"], "GB") + "/s",
            _formatted(one["fraction_of_aes"], "percent"),
        )
        for bits, one in measured.items()
    ]
    return _markdown(("word", "key stream added", "of raw AES-256-CTR"), rows)


def _provenance(directory: Path | None) -> str:
    """Which commit and protocol each file is of, and whether the machine had anything else to do."""
    rows, outdated = [], []
    for path in sorted((directory or results.DIRECTORY).glob("*.json")):
        one = results.read(path.stem, directory)
        protocol = one.get("protocol", 1)
        machine = one["machine"]
        before = machine.get("load_before")
        load = f"{before:.1f} before" if before is not None else f"{machine['load_average']:.1f} at the end"
        quiet = "yes" if machine.get("quiet") else "**no**"
        rows.append((path.stem, str(one["commit"]), str(protocol), load, quiet))
        if protocol != VERSION:
            outdated.append(f"{path.stem} (commit {one['commit']})")
    table = _markdown(("file", "commit", "protocol version", "load", "quiet machine"), rows)
    if not outdated:
        return table
    return (
        f"**These figures describe protocol version 1, not the code beside them, which speaks version {VERSION}:** "
        f"{', '.join(outdated)}. They stay until they are measured again on a quiet machine.\n\n{table}"
    )


def _markdown(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heading = list(heading)
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


_TABLES: dict[str, Callable[..., str]] = {
    "whole": _whole,
    "claims": _claims,
    "costs": _costs,
    "ratios": _ratios,
    "exponents": _exponents,
    "steps": _steps,
    "limits": _limits,
    "provenance": _provenance,
}

if __name__ == "__main__":
    write()
