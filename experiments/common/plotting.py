"""One look for all pictures, each as SVG for pages and PNG for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparsesecagg.errors import MissingExtra

COLOURS = {
    "secagg": "#555555",
    "pairwise": "#c0392b",
    "sliced": "#1f6fb2",
    "theory": "#111111",
    "good": "#2e8b57",
}
MARKERS = {"secagg": "s", "pairwise": "o", "sliced": "D"}


def pyplot() -> Any:
    """Return matplotlib's pyplot, set up to draw into files that come out the same each time."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtra("learn", "reproduce") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update(
        {
            "figure.dpi": 150,
            "font.size": 9.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "legend.frameon": False,
            "svg.hashsalt": "sparsesecagg",
        }
    )
    return plt


def panels(count: int, title: str, width: float = 4.4, height: float = 3.5) -> tuple[Any, Sequence[Any]]:
    """Return a figure with `count` panels side by side, and the panels."""
    figure, axes = pyplot().subplots(1, count, figsize=(width * count, height), squeeze=False, layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, list(axes[0])


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write `name`.svg and `name`.png into `folder`, without a date, so that equal pictures are equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], metadata={"Software": None})
    pyplot().close(figure)
    return paths
