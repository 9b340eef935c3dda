"""The plots of docs/performance.md, drawn from result files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.systems import NAMES
from sparsesecagg.errors import MissingExtra
from sparsesecagg.lab.report.plots import GRID, RUNS

_STYLES = {"sliced": (RUNS[0], "o"), "secagg": (RUNS[2], "D")}
_AXES = {"dim": "coordinates d", "clients": "users N"}


def draw_growth(result: dict[str, Any], names: list[str], path: Path) -> None:
    """Draw costs in log-log scale, one panel for each sweep."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise MissingExtra("learn", "drawing the plots of docs/performance.md") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    # Fixed ids and no date, so that the same results give the same file.
    mpl.rcParams.update({"svg.hashsalt": "sparsesecagg", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 9})
    figure, axes = plt.subplots(1, len(names), figsize=(4.2 * len(names), 3.2), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        sweep = result["sweeps"][name]
        for system, series in sweep["series"].items():
            x, y = np.array(series["points"], float).T
            colour, marker = _STYLES[system]
            axis.plot(x, y, marker=marker, ms=4, lw=1.4, color=colour, label=NAMES[system])
        axis.set(xscale="log", yscale="log", xlabel=_AXES[sweep["varied"]], ylabel="seconds", title=sweep["title"])
        axis.legend(fontsize=8, frameon=False)
        axis.grid(True, which="major", color=GRID, lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
