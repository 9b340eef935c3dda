"""The audit's picture: how many honest users a value hides among, pattern beside pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator, PercentFormatter

mpl.use("Agg")

_BARE, _MASKED, _PROMISE = "#c0392b", "#1f6fb2", "0.25"


def draw_histograms(audits: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Draw the histograms of audits in their JSON form, side by side, each with its own sizes."""
    figure, row = plt.subplots(
        1, len(audits), figsize=(4.1 * len(audits) + 0.6, 3.7), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, found in zip(row[0], audits, strict=True):
        _draw_one(axes, found)
    tallest = max(fraction for found in audits for fraction in found["honest_component"]["histogram"].values())
    row[0][0].set_ylim(0, min(1.0, 1.15 * tallest))
    row[0][0].set_ylabel("share of honest users' values")
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_one(axes: Any, found: Mapping[str, Any]) -> None:
    histogram = {int(size): fraction for size, fraction in found["honest_component"]["histogram"].items()}
    colours = [_BARE if size == 1 else _MASKED for size in histogram]
    axes.bar(list(histogram), list(histogram.values()), width=0.8, color=colours)
    promised = found["claimed_T"]
    axes.axvline(promised, color=_PROMISE, linestyle="--", linewidth=1)
    axes.annotate(
        f"promised T = {promised:.1f}",
        (promised, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        rotation=90,
        fontsize=9,
        color=_PROMISE,
    )
    bare = histogram.get(1, 0.0)
    axes.set_title(f"{found['pattern']}: {_percent(bare)} in the clear", fontsize=10, color=_BARE if bare else "black")
    largest = max([*histogram, promised])
    axes.set(xlabel="honest users in one sum", xlim=(0, 1.08 * largest + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(True, axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _percent(fraction: float) -> str:
    if fraction == 0:
        return "none"
    return f"{100 * fraction:.0f} %" if fraction >= 0.1 else f"{100 * fraction:.2g} %"
