"""Figures for papers: accuracy by round and by bytes sent, drawn by Matplotlib as PDF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sparsesecagg.errors import MissingExtra
from sparsesecagg.lab.report.measures import cumulative_sent
from sparsesecagg.lab.report.palette import RUNS
from sparsesecagg.lab.report.records import Run, read_runs

_DASHES = ("-", "--", ":", "-.")
_PICTURES: dict[str, tuple[str, Callable[[Run], Sequence[float]]]] = {
    "accuracy-by-round": ("round", lambda run: [line.round for line in run.rounds]),
    "accuracy-by-sent": ("MB sent per user, all messages", lambda run: [sent / 1e6 for sent in cumulative_sent(run)]),
}


def write_pictures(run_dirs: Sequence[Path], folder: Path) -> list[Path]:
    """Write the figures into a folder; bands are one standard deviation over seeds on either side of the mean."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("learn", "A PDF figure") from error
    runs, written = read_runs(run_dirs), []
    folder.mkdir(parents=True, exist_ok=True)
    for name, (label, across) in _PICTURES.items():
        figure = Figure(figsize=(4.5, 3.0), layout="constrained")
        axes = figure.add_subplot()
        for number, run in enumerate(runs):
            _draw(axes, run, across(run), RUNS[number % len(RUNS)], _DASHES[number % len(_DASHES)])
        axes.set(xlabel=label, ylabel="test accuracy (%)")
        axes.grid(alpha=0.3)
        if runs:
            axes.legend(fontsize="small")
        written.append(folder / f"{name}.pdf")
        # Without the date the same runs give the same bytes.
        figure.savefig(written[-1], metadata={"CreationDate": None})
    return written


def _draw(axes: Any, run: Run, x: Sequence[float], colour: str, dash: str) -> None:
    accuracy = [100 * (line.accuracy or 0.0) for line in run.rounds]
    axes.plot(x, accuracy, dash, color=colour, label=run.name)
    if run.seeds:
        low, high = zip(*((y - 100 * s, y + 100 * s) for y, s in zip(accuracy, run.spread, strict=True)), strict=True)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
