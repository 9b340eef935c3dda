"""The plots of docs/performance.md, drawn from result files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import NAMES
from sparsesecagg.errors import MissingExtra
from sparsesecagg.lab.report.palette import LIGHT, LIGHT_RUNS

COLOURS = {
    "committee": LIGHT_RUNS[0],
    "pairwise": LIGHT_RUNS[1],
    "secagg": LIGHT_RUNS[2],
    "flower_secagg_plus": LIGHT_RUNS[3],
    "secagg_plus": LIGHT_RUNS[4],
}
_MARKERS = {"committee": "o", "pairwise": "s", "secagg": "D"}
_AXES = {"dim": "coordinates d", "clients": "clients N", "alpha": "α", "dropout": "dropout θ"}
_PANEL = 3.6


def draw_comparison(result: dict[str, Any], path: Path) -> None:
    """Bars of seconds and bytes, in log scale, one colour per system."""
    systems = list(result["systems"])
    panels = {
        "one client, seconds": [result["systems"][name]["client_seconds"]["total"] for name in systems],
        "server, seconds": [result["systems"][name]["server_seconds"]["total"] for name in systems],
        "one client, bytes sent": [result["systems"][name]["sent_bytes"] for name in systems],
    }
    figure, axes = _figure(len(panels), height=2.6)
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        places = np.arange(len(systems))[::-1]
        axis.barh(places, values, color=[COLOURS[name] for name in systems])
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 3, max(values) * 8)
        axis.set_yticks(places, [NAMES[name] for name in systems] if axis is axes[0] else [""] * len(systems))
        axis.set_title(title)
        for place, value in zip(places, values, strict=True):
            axis.text(value * 1.15, place, _short(value), va="center", fontsize=8, color=LIGHT.ink)
    _save(figure, path)


def draw_sweeps(result: dict[str, Any], names: list[str], path: Path) -> None:
    """Costs in log-log scale with the fitted power laws, and the paper's growth as a grey line."""
    present = [name for name in names if name in result["sweeps"]]
    figure, axes = _figure(len(present), height=3.2)
    for axis, name in zip(axes, present, strict=True):
        sweep = result["sweeps"][name]
        for system, series in sweep["series"].items():
            x, y = np.array(series["points"], float).T
            fitted = series["exponent"]
            label = NAMES[system] + ("" if fitted is None else f", exponent {fitted:.2f}")
            axis.plot(x, y, marker=_MARKERS[system], ms=4, lw=1.4, color=COLOURS[system], label=label)
        if sweep["paper_exponent"] is not None:
            x, y = np.array(max(sweep["series"].values(), key=lambda one: one["points"][-1][1])["points"], float).T
            growth = y[-1] * 2 * (x / x[-1]) ** sweep["paper_exponent"]
            axis.plot(x, growth, ls=":", color=LIGHT.soft, label=f"the paper's exponent, {sweep['paper_exponent']:g}")
        axis.set(xscale="log", yscale="log", xlabel=_AXES[sweep["varied"]], ylabel="seconds")
        axis.set_title("\n".join(_wrapped(sweep["title"])), fontsize=9)
        axis.legend(fontsize=7, frameon=False)
        axis.grid(True, which="major", color=LIGHT.grid, lw=0.6)
    _save(figure, path)


def draw_profile(result: dict[str, Any], path: Path) -> None:
    """Stacked bars: which part of each side's time goes where."""
    rows = [(system, side) for system in result["systems"] for side in ("client_upload", "server")]
    groups = sorted(
        {group for system, side in rows for group in result["systems"][system][side]},
        key=lambda group: -sum(result["systems"][system][side].get(group, 0.0) for system, side in rows),
    )
    palette = [*LIGHT_RUNS, "#b8bfc7", "#8aa0b5", "#d9c7a0"]
    figure, (axis,) = _figure(1, height=3.4, width=9.0)
    left = np.zeros(len(rows))
    for index, group in enumerate(groups):
        widths = np.array([100 * result["systems"][system][side].get(group, 0.0) for system, side in rows])
        axis.barh(np.arange(len(rows))[::-1], widths, left=left, color=palette[index % len(palette)], label=group)
        left += widths
    names = [f"{NAMES[system]}, {'client UPLOAD' if side == 'client_upload' else 'server'}" for system, side in rows]
    axis.set_yticks(np.arange(len(rows))[::-1], names)
    axis.set(xlim=(0, 100), xlabel="percent of the profiled time")
    axis.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _save(figure, path)


def _figure(panels: int, height: float, width: float | None = None) -> Any:
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise MissingExtra("learn", "drawing the plots of docs/performance.md") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    # Fixed ids and no date, so that the same results give the same file.
    mpl.rcParams.update({"svg.hashsalt": "sparsesecagg", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 9})
    figure, axes = plt.subplots(1, panels, figsize=(width or _PANEL * panels, height), squeeze=False)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def _wrapped(title: str) -> list[str]:
    subject, _, rest = title.partition(", ")
    return [subject, rest]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
