"""The plots of a report, as Plotly figures in plain dictionaries, and two of them as PDF for papers.

Colours follow Okabe and Ito, and are never the only sign: every run also has its own dash and marker.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsesecagg.cli.shared import bytes_text
from sparsesecagg.errors import MissingExtra
from sparsesecagg.lab.report.measures import Measures, contributors_distribution, cumulative_sent, mean_by_stage
from sparsesecagg.lab.report.records import STAGES, LabelCounts, Run, read_runs

Json = dict[str, Any]

RUNS = ("#1283ce", "#a83100", "#af5390", "#444b53", "#00805e", "#a67400", "#4b3f9e", "#7a4a2b")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "pentagon")
INK, GRID, BAD = "#1d2733", "#e3e7ec", "#b3261e"
HEAT = ("#eef3f8", "#0b4f80")

# Beyond this ratio between the runs' totals the small ones would be squeezed against the axis.
LOGARITHMIC_FROM = 5.0
MODEL = "the model"
BYTES = {"tickformat": "~s", "ticksuffix": "B"}
PERCENT = {"tickformat": ".0%"}


@dataclass(frozen=True)
class Figure:
    """A plot with its words."""

    id: str
    title: str
    caption: str
    data: list[Json]
    layout: Json
    wide: bool = True


def figures(measures: Sequence[Measures]) -> list[Figure]:
    """Return the plots; those without anything to draw are left out."""
    runs = [m.run for m in measures]
    partitions = dict.fromkeys(run.partition for run in runs if run.partition and run.partition.counts)
    drawn = [
        accuracy_by_round(runs),
        accuracy_by_bytes(runs),
        bytes_sent(runs),
        bytes_received(measures),
        contributors(runs),
        *(label_distribution(partition, number) for number, partition in enumerate(partitions, start=1)),
    ]
    return [figure for figure in drawn if figure.data]


def accuracy_by_round(runs: Sequence[Run]) -> Figure:
    """Draw test accuracy after each round; failed rounds are marked, and tell the reason when pointed at."""
    data: list[Json] = []
    for place, run in enumerate(runs):
        data += _accuracy(place, run, [line.round for line in run.rounds], "%{y:.1%}")
        failed = [line for line in run.rounds if line.failed and line.accuracy is not None]
        if failed:
            cross = {
                "type": "scatter",
                "mode": "markers",
                "name": f"{plot_text(run.name)}: failed",
                "x": [line.round for line in failed],
                "y": [line.accuracy for line in failed],
                "customdata": [plot_text(line.reason or "no reason recorded") for line in failed],
                "marker": {"color": BAD, "size": 10, "symbol": "x"},
                "hovertemplate": "%{customdata}",
                "showlegend": False,
            }
            data.append(cross)
    caption = "Test accuracy of the global model. A cross: a round that failed; a band: standard deviation over seeds."
    layout = _layout("round", "test accuracy", {}, PERCENT, hovermode="x unified")
    return Figure("accuracy-by-round", "Accuracy by round", caption, data, layout)


def accuracy_by_bytes(runs: Sequence[Run]) -> Figure:
    """Draw test accuracy against the bytes of all messages that one user has sent."""
    sent = [cumulative_sent(run) for run in runs]
    totals = [values[-1] for values in sent if values and values[-1] > 0]
    data = []
    for place, (run, values) in enumerate(zip(runs, sent, strict=True)):
        data += _accuracy(place, run, values, "%{y:.1%} in round %{customdata}<br>%{x:.3~s}B")
    apart = bool(totals) and max(totals) >= LOGARITHMIC_FROM * min(totals)
    axis = BYTES | ({"type": "log", "dtick": "D2", "showticksuffix": "all"} if apart else {"rangemode": "tozero"})
    label = f"bytes sent per user{' (logarithmic)' * apart}"
    layout = _layout(label, "test accuracy", axis, PERCENT, hovermode="closest")
    return Figure("accuracy-by-sent", "Accuracy by bytes sent", "All messages of one user by then.", data, layout)


def bytes_sent(runs: Sequence[Run]) -> Figure:
    """Draw what one user sends in a round, by stage."""
    # Plain averaging records no stages: its one message is the upload.
    rows = [mean_by_stage(run, lambda line: line.sent_bytes or {"UPLOAD": line.upload_bytes}) for run in runs]
    caption = "What one user sends in a round, on average: sizes of real messages."
    return _bars("bytes-sent", "Bytes sent by stage", caption, runs, rows)


def bytes_received(measures: Sequence[Measures]) -> Figure:
    """Draw what one user receives in a round, by stage."""
    rows = [
        ({MODEL: m.model_per_round} if m.model_per_round else {}) | mean_by_stage(m.run, lambda r: r.received_bytes)
        for m in measures
    ]
    caption = "What one user receives in a round, on average, and the model on its way down, whole or in steps."
    return _bars("bytes-received", "Bytes received by stage", caption, [m.run for m in measures], rows)


def contributors(runs: Sequence[Run]) -> Figure:
    """Draw which share of the opened coordinates had how many contributors."""
    data = []
    for place, run in enumerate(runs):
        if shares := contributors_distribution(run):
            # Steps need the empty counts too, and one on either side to come down to zero.
            counts = list(range(max(0, min(shares) - 1), max(shares) + 2))
            hover = "%{x} contributors: %{y:.1%} of coordinates"
            trace = _line(place, run, counts, [shares.get(k, 0.0) for k in counts], hover)
            data.append(trace | {"mode": "lines", "line": trace["line"] | {"shape": "hvh"}})
    caption = "How many users' values each opened coordinate of the sum holds; the smallest count is the weakest spot."
    layout = _layout("users whose value is in the sum", "share of coordinates", {}, PERCENT)
    return Figure("contributors", "Contributors per coordinate", caption, data, layout)


def label_distribution(partition: LabelCounts, number: int) -> Figure:
    """Draw how many samples of each class each client holds."""
    heat = {
        "type": "heatmap",
        "x": [str(client) for client in range(len(partition.counts))],
        "y": [plot_text(name) for name in partition.classes],
        "z": [list(column) for column in zip(*partition.counts, strict=True)],
        "colorscale": [[0, HEAT[0]], [1, HEAT[1]]],
        "colorbar": {"title": {"text": "samples"}},
        "hovertemplate": "client %{x}, class %{y}: %{z} samples<extra></extra>",
    }
    layout = _layout("client", "class", {"type": "category", "nticks": 25}, {"type": "category"})
    caption = "Samples of each class that each client holds."
    return Figure(f"label-distribution-{number}", "Label distribution", caption, [heat], layout)


def plot_text(text: str) -> str:
    """Escape a string for a plot: Plotly reads a small HTML of its own in names, labels and hover texts."""
    return html.escape(text, quote=False)


def _layout(x: str, y: str, more_x: Json, more_y: Json, **more: Any) -> Json:
    axis = {"gridcolor": GRID, "linecolor": GRID, "zeroline": False, "automargin": True}
    return {
        "height": 330,
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 8, "r": 14, "t": 36, "b": 40},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        "xaxis": {**axis, "title": {"text": x}, **more_x},
        "yaxis": {**axis, "title": {"text": y}, **more_y},
        **more,
    }


def _line(place: int, run: Run, x: Sequence[Any], y: Sequence[Any], hover: str) -> Json:
    """Draw one run as a line with a few markers; the palette begins again after eight."""
    place %= len(RUNS)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plot_text(run.name),
        "x": list(x),
        "y": list(y),
        "line": {"color": RUNS[place], "width": 2.5, "dash": DASHES[place]},
        "marker": {"color": RUNS[place], "size": 7, "symbol": SYMBOLS[place], "maxdisplayed": 12},
        "hovertemplate": hover,
    }


def _accuracy(place: int, run: Run, across: Sequence[float], hover: str) -> list[Json]:
    """Draw a run's accuracy; over several seeds with one standard deviation on either side of the mean, shaded."""
    known = [(x, line) for x, line in zip(across, run.rounds, strict=True) if line.accuracy is not None]
    if not known:
        return []
    trace = _line(place, run, [x for x, _ in known], [line.accuracy for _, line in known], hover)
    line = trace | {"customdata": [line.round for _, line in known]}
    if not run.seeds:
        return [line]
    low, high = _band(run)
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [*across, *reversed(across)],
        "y": [*high, *reversed(low)],
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": trace["line"]["color"] + "33",  # A fifth opaque.
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return [band, line]


def _band(run: Run) -> tuple[list[float], list[float]]:
    """Return the mean accuracy less and plus one standard deviation over seeds, for each round."""
    pairs = [(line.accuracy or 0.0, spread) for line, spread in zip(run.rounds, run.spread, strict=True)]
    return [mean - spread for mean, spread in pairs], [mean + spread for mean, spread in pairs]


def _bars(identity: str, title: str, caption: str, runs: Sequence[Run], rows: Sequence[Mapping[str, float]]) -> Figure:
    """Draw one group of bars per category, in the order of the protocol; `rows` has each run's values."""
    order = [name for name in (MODEL, *STAGES) if any(name in row for row in rows)]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plot_text(run.name),
            "y": [name for name in order if name in row],
            "x": [row[name] for name in order if name in row],
            "text": [bytes_text(row[name]) for name in order if name in row],
            "textposition": "auto",
            "marker": {"color": RUNS[place % len(RUNS)]},
            "hovertemplate": "%{y}: %{text}",
        }
        for place, (run, row) in enumerate(zip(runs, rows, strict=True))
        if row
    ]
    categories = {"categoryorder": "array", "categoryarray": order, "autorange": "reversed"}
    layout = _layout("", "", BYTES | {"rangemode": "tozero"}, categories, barmode="group")
    height = 100 + len(order) * (14 + 19 * len(runs))
    return Figure(identity, title, caption, data, layout | {"height": height}, wide=False)


_PDF: dict[str, tuple[str, Callable[[Run], Sequence[float]]]] = {
    "accuracy-by-round": ("round", lambda run: [line.round for line in run.rounds]),
    "accuracy-by-sent": ("MB sent per user, all messages", lambda run: [sent / 1e6 for sent in cumulative_sent(run)]),
}


def write_pdf(run_dirs: Sequence[Path], folder: Path) -> list[Path]:
    """Write accuracy by round and by bytes sent into a folder, drawn by Matplotlib; bands as on the page."""
    try:
        from matplotlib.figure import Figure as Drawing
    except ImportError as error:
        raise MissingExtra("learn", "A PDF figure") from error
    runs, written = read_runs(run_dirs), []
    folder.mkdir(parents=True, exist_ok=True)
    for name, (label, across) in _PDF.items():
        drawing = Drawing(figsize=(4.5, 3.0), layout="constrained")
        axes = drawing.add_subplot()
        for place, run in enumerate(runs):
            colour, dash = RUNS[place % len(RUNS)], ("-", "--", ":", "-.")[place % 4]
            accuracies = [100 * (line.accuracy or 0.0) for line in run.rounds]
            axes.plot(across(run), accuracies, dash, color=colour, label=run.name)
            if run.seeds:
                low, high = ([100 * value for value in edge] for edge in _band(run))
                axes.fill_between(across(run), low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel=label, ylabel="test accuracy (%)")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        written.append(folder / f"{name}.pdf")
        drawing.savefig(written[-1], metadata={"CreationDate": None})  # The same runs give the same bytes.
    return written
