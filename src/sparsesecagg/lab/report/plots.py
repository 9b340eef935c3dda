"""The plots of a report, as Plotly figures written in plain dictionaries; Plotly itself writes them into the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparsesecagg.lab.report.markup import plot_text
from sparsesecagg.lab.report.measures import (
    Measures,
    contributors_distribution,
    cumulative_sent,
    mean_by_stage,
)
from sparsesecagg.lab.report.palette import BAD, DASHES, GRID, HEAT, INK, RUNS, SYMBOLS
from sparsesecagg.lab.report.records import STAGES, LabelCounts, Run
from sparsesecagg.lab.report.words import bytes_text, percent, unit_for

Json = dict[str, Any]

HEIGHT = 330
# Beyond this ratio between the runs' totals the small ones would be squeezed against the axis.
LOGARITHMIC_FROM = 5.0
MODEL = "the model"


@dataclass(frozen=True)
class Series:
    """One run as the plots see it: its figures, and its place in the palette."""

    measures: Measures
    place: int

    @property
    def run(self) -> Run:
        """The run itself."""
        return self.measures.run

    @property
    def name(self) -> str:
        """The run's name, safe inside a plot."""
        return plot_text(self.run.name)

    @property
    def color(self) -> str:
        """The run's colour."""
        return RUNS[self.place]


@dataclass(frozen=True)
class Figure:
    """A plot with its words. `description` stands in for the picture where it can't be seen."""

    id: str
    title: str
    caption: str
    description: str
    data: list[Json]
    layout: Json
    wide: bool = False


def series_of(measures: Sequence[Measures]) -> list[Series]:
    """Give each run its place in the palette, which begins again after eight."""
    return [Series(m, number % len(RUNS)) for number, m in enumerate(measures)]


def figure_groups(series: Sequence[Series]) -> list[tuple[str, list[Figure]]]:
    """Return the plots under their headings; plots without anything to draw are left out."""
    partitions = dict.fromkeys(s.run.partition for s in series if s.run.partition and s.run.partition.counts)
    groups = [
        ("Learning", [accuracy_by_round(series), accuracy_by_bytes(series)]),
        ("Communication", [bytes_sent(series), bytes_received(series)]),
        ("Taking part", [contributors(series)]),
        ("Data", [label_distribution(partition, number) for number, partition in enumerate(partitions, start=1)]),
    ]
    return [(title, [figure for figure in group if figure.data]) for title, group in groups]


def accuracy_by_round(series: Sequence[Series]) -> Figure:
    """Draw test accuracy after each round; failed rounds are marked."""
    data: list[Json] = []
    for s in series:
        known = [record for record in s.run.rounds if record.accuracy is not None]
        if known:
            data += _band(s, [r.round for r in s.run.rounds])
            data.append(_line(s, [r.round for r in known], [r.accuracy for r in known], "%{y:.1%}"))
            data += _crosses(s)
    described = [f"{s.run.name} ends at {percent(s.measures.accuracy)}" for s in series]
    return Figure(
        "accuracy-by-round",
        "Accuracy by round",
        "Test accuracy of the global model after each round. A cross marks a round that failed, a band the standard "
        "deviation over seeds.",
        f"Line plot of test accuracy against rounds: {'; '.join(described)}.",
        data,
        _layout("round", "test accuracy", {}, {"tickformat": ".0%"}, hovermode="x unified"),
        wide=True,
    )


def accuracy_by_bytes(series: Sequence[Series]) -> Figure:
    """Draw test accuracy against the bytes of all messages that one user has sent."""
    sent = [(s, cumulative_sent(s.run)) for s in series]
    totals = [values[-1] for _, values in sent if values and values[-1] > 0]
    unit = unit_for(totals)
    data = []
    for s, values in sent:
        known = [(r, v) for r, v in zip(s.run.rounds, values, strict=True) if r.accuracy is not None and v > 0]
        if known:
            hover = "%{y:.1%} in round %{customdata}<br>%{x:.3~r} " + unit.name
            data += _band(s, [value / unit.size for value in values])
            trace = _line(s, [value / unit.size for _, value in known], [record.accuracy for record, _ in known], hover)
            data.append(trace | {"customdata": [record.round for record, _ in known]})
    spread = bool(totals) and max(totals) >= LOGARITHMIC_FROM * min(totals)
    axis = {"type": "log", "dtick": "D2", "tickformat": "~r"} if spread else {"rangemode": "tozero"}
    title = f"{unit.name} sent per user{' (logarithmic)' if spread else ''}"
    described = [
        f"{s.run.name} ends at {percent(s.measures.accuracy)} after {bytes_text(s.measures.sent_total)}" for s in series
    ]
    return Figure(
        "accuracy-by-sent",
        "Accuracy by bytes sent",
        "All messages of one user by then.",
        f"Line plot of test accuracy against bytes sent per user: {'; '.join(described)}.",
        data,
        _layout(title, "test accuracy", axis, {"tickformat": ".0%"}, hovermode="closest"),
        wide=True,
    )


def bytes_sent(series: Sequence[Series]) -> Figure:
    """Draw what one user sends in a round, by stage."""
    # Plain averaging records no stages: its one message is the upload.
    rows = [mean_by_stage(s.run, lambda r: r.sent_bytes or {"UPLOAD": r.upload_bytes}) for s in series]
    caption = "What one user sends in a round, on average: sizes of real messages."
    return _bars("bytes-sent", "Bytes sent by stage", caption, series, rows)


def bytes_received(series: Sequence[Series]) -> Figure:
    """Draw what one user receives in a round, by stage."""
    rows = [mean_by_stage(s.run, lambda r: r.received_bytes) for s in series]
    rows = [{MODEL: m} | row if (m := s.measures.model_per_round) else row for s, row in zip(series, rows, strict=True)]
    caption = "What one user receives in a round, on average, and the model on its way down, whole or in steps."
    return _bars("bytes-received", "Bytes received by stage", caption, series, rows)


def contributors(series: Sequence[Series]) -> Figure:
    """Draw which share of the opened coordinates had how many contributors."""
    data, described = [], []
    for s in series:
        if not (shares := contributors_distribution(s.run)):
            continue
        # Steps need the empty counts too, and one on either side to come down to zero.
        counts = list(range(max(0, min(shares) - 1), max(shares) + 2))
        trace = _line(s, counts, [shares.get(k, 0.0) for k in counts], "%{x} contributors: %{y:.1%} of coordinates")
        data.append(trace | {"mode": "lines", "line": trace["line"] | {"shape": "hvh"}})
        described.append(f"{s.run.name} {sum(k * share for k, share in shares.items()):.3g} on average")
    return Figure(
        "contributors",
        "Contributors per coordinate",
        "How many users' values each opened coordinate of the sum holds; the smallest count is the weakest spot.",
        f"Step plot of the share of coordinates by number of contributors: {'; '.join(described)}.",
        data,
        _layout("users whose value is in the sum", "share of coordinates", {}, {"tickformat": ".0%"}),
    )


def label_distribution(partition: LabelCounts, number: int) -> Figure:
    """Draw how many samples of each class each client holds."""
    clients = [str(client) for client in range(len(partition.counts))]
    columns = [list(column) for column in zip(*partition.counts, strict=True)]
    total = sum(map(sum, partition.counts))
    heat = {
        "type": "heatmap",
        "x": clients,
        "y": [plot_text(name) for name in partition.classes],
        "z": columns,
        "colorscale": [[0, HEAT[0]], [1, HEAT[1]]],
        "colorbar": {"title": {"text": "samples"}},
        "hovertemplate": "client %{x}, class %{y}: %{z} samples<extra></extra>",
    }
    layout = _layout("client", "class", {"type": "category", "nticks": 25}, {"type": "category"})
    return Figure(
        f"label-distribution-{number}",
        "Label distribution",
        "Samples of each class that each client holds.",
        f"Heat map of {total} samples over {len(clients)} clients and {len(partition.classes)} classes.",
        [heat],
        layout,
        wide=True,
    )


def _layout(x: str, y: str, more_x: Json, more_y: Json, **more: Any) -> Json:
    axis = {"gridcolor": GRID, "linecolor": GRID, "zeroline": False, "automargin": True}
    return {
        "height": HEIGHT,
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 8, "r": 14, "t": 36, "b": 40},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        "xaxis": {**axis, "title": {"text": x}, **more_x},
        "yaxis": {**axis, "title": {"text": y}, **more_y},
        **more,
    }


def _line(s: Series, x: Sequence[Any], y: Sequence[Any], hover: str) -> Json:
    """Draw one run as a line with a few markers, which tell runs apart without colour."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": s.name,
        "x": list(x),
        "y": list(y),
        "line": {"color": s.color, "width": 2.5, "dash": DASHES[s.place]},
        "marker": {"color": s.color, "size": 7, "symbol": SYMBOLS[s.place], "maxdisplayed": 12},
        "hovertemplate": hover,
    }


def _band(s: Series, x: Sequence[float]) -> list[Json]:
    """Shade one standard deviation over seeds on either side of the mean accuracy."""
    if not s.run.seeds:
        return []
    pairs = [(r.accuracy or 0.0, spread) for r, spread in zip(s.run.rounds, s.run.spread, strict=True)]
    outline = [mean + spread for mean, spread in pairs] + [mean - spread for mean, spread in reversed(pairs)]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [*x, *reversed(x)],
            "y": outline,
            "line": {"width": 0},
            "fill": "toself",
            "fillcolor": s.color + "33",  # A fifth opaque.
            "hoverinfo": "skip",
            "showlegend": False,
        }
    ]


def _crosses(s: Series) -> list[Json]:
    """Mark failed rounds with a cross that tells the reason when pointed at."""
    failed = [record for record in s.run.rounds if record.failed and record.accuracy is not None]
    if not failed:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{s.name}: failed",
            "x": [record.round for record in failed],
            "y": [record.accuracy for record in failed],
            "customdata": [plot_text(record.reason or "no reason recorded") for record in failed],
            "marker": {"color": BAD, "size": 10, "symbol": "x"},
            "hovertemplate": "%{customdata}",
            "showlegend": False,
        }
    ]


def _bars(
    identity: str, title: str, caption: str, series: Sequence[Series], rows: Sequence[Mapping[str, float]]
) -> Figure:
    """Draw one group of bars per category, in the order of the protocol; `rows` has each run's values."""
    unit = unit_for([value for row in rows for value in row.values()])
    order = [name for name in (MODEL, *STAGES) if any(name in row for row in rows)]
    data, described = [], []
    for s, row in zip(series, rows, strict=True):
        kept = [name for name in order if name in row]
        # Each figure in its own best unit: 64 B says more than 0.064 kB beside a bar too short to see.
        texts = [bytes_text(row[name]) for name in kept]
        if kept:
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": s.name,
                    "y": kept,
                    "x": [row[name] / unit.size for name in kept],
                    "text": texts,
                    "textposition": "auto",
                    "marker": {"color": s.color},
                    "hovertemplate": "%{y}: %{text}",
                }
            )
            described.append(f"{s.run.name} {', '.join(map(' '.join, zip(kept, texts, strict=True)))}")
    categories = {"categoryorder": "array", "categoryarray": order, "autorange": "reversed"}
    height = 100 + len(order) * (14 + 19 * len(series))
    layout = _layout(unit.name, "", {"rangemode": "tozero"}, categories, barmode="group") | {"height": height}
    return Figure(identity, title, caption, f"Bar chart: {'; '.join(described)}.", data, layout)
