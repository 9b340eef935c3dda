"""Draw Table 1 and compare it with the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, panels, save
from experiments.table1.config import PAPER_MB

MEGABYTE = 1e6
_STYLES: dict[str, tuple[str, str, str]] = {
    "secagg": (COLOURS["secagg"], "-", "s"),
    "bitmap": (COLOURS["pairwise"], "-", "o"),
    "pairwise": (COLOURS["pairwise"], "--", "o"),
    "sliced-32": (COLOURS["sliced"], "-", "D"),
    "sliced-16": (COLOURS["sliced"], "--", "D"),
}


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the largest upload of every system against N."""
    numbers, config = result["numbers"], result["configuration"]
    figure, (axes,) = panels(1, f"largest upload per user and round, {numbers['dim']:,} parameters", 8.0, 4.4)
    cohorts = list(config["cohorts"])
    names: list[tuple[float, str, str]] = []
    for system, (colour, line, marker) in _STYLES.items():
        rows = [row for row in numbers["rows"] if row["system"] == system]
        if rows:
            sizes = [row["upload_bytes"]["max"] / MEGABYTE for row in rows]
            axes.plot([row["clients"] for row in rows], sizes, line, color=colour, marker=marker, markersize=4.5)
            names.append((sizes[-1], f"{rows[-1]['label']}: {sizes[-1]:.3g} MB", colour))
    for system, column in PAPER_MB.items():
        known = {clients: size for clients, size in column.items() if clients in cohorts}
        label = "the paper's Table 1" if system == "secagg" else None
        axes.plot(list(known), list(known.values()), "x", color=COLOURS["theory"], markersize=8, label=label, zorder=5)
    axes.set_yscale("log")
    axes.set_ylim(0.01, 2)
    axes.set_yticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2], ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"])
    axes.minorticks_off()
    axes.set_xticks(cohorts)
    axes.set_xlabel(f"users N (θ = {config['dropout']:g}, α = {config['alpha']:g}, one group)")
    axes.set_ylabel("MB, worst case over users and rounds")
    margin = 0.04 * cohorts[-1]
    axes.set_xlim(cohorts[0] - margin, cohorts[-1] + margin)
    axes.legend(loc="lower left", fontsize=8)
    _name_lines(axes, names)
    return save(figure, folder, result["name"])


def _name_lines(axes: Any, names: Sequence[tuple[float, str, str]], apart: float = 1.19) -> None:
    """Write each line's name right of its end, and `apart` times higher than the one below it at least."""
    height = 0.0
    for size, text, colour in sorted(names):
        height = max(size, apart * height)
        axes.annotate(
            text,
            (1.02, height),
            xycoords=("axes fraction", "data"),
            color=colour,
            fontsize=8,
            va="center",
            annotation_clip=False,
        )


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return every system's worst case, beside the paper's where it has one."""
    numbers = result["numbers"]
    formulas = {found["clients"]: found for found in numbers["formula"]}
    rows = []
    for found in numbers["rows"]:
        clients, upload = found["clients"], found["upload_bytes"]
        paper = PAPER_MB.get(found["system"], {}).get(clients)
        base = next(
            one["upload_bytes"]["max"]
            for one in numbers["rows"]
            if (one["system"], one["clients"]) == ("secagg", clients)
        )
        notes = [f"{base / upload['max']:.1f}× less than SecAgg"] if upload["max"] < base else []
        if paper is not None:
            off = [100 * (upload[name] / (paper * MEGABYTE) - 1) for name in ("max", "mean")]
            notes.append(f"{off[0]:+.1f} % from the paper's figure (mean {off[1]:+.1f} %)")
        if found["system"] == "bitmap" and paper is not None:
            average = formulas[clients]
            notes.append(
                f"d(32p + 1) bits are {average['bitmap_mean'] / MEGABYTE:.4f} MB on average; "
                f"α/N for α/(N−1) would give {average['bitmap_mean_if_alpha_over_n'] / MEGABYTE:.4f}, "
                "nearer to what is printed"
            )
        rows.append(
            Row(
                f"N={clients}, {found['label']}",
                "–" if paper is None else f"{paper:g} MB",
                f"{upload['max'] / MEGABYTE:.4f} MB (all stages {found['sent_bytes'] / MEGABYTE:.4f})",
                "; ".join(notes),
            )
        )
    return rows
