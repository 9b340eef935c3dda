"""Who holds which classes: a heat map of counts, with the samples of each client beside it."""

from __future__ import annotations

from collections.abc import Sequence

from sparsesecagg.lab.report.markup import plot_text
from sparsesecagg.lab.report.plots.base import Figure, FigureView, Json
from sparsesecagg.lab.report.records import LabelCounts
from sparsesecagg.lab.report.words import count

# Counts are written into the cells while there is room for two digits.
WRITTEN_UP_TO = 60


def label_distribution(partition: LabelCounts, number: int = 1, runs: Sequence[str] = ()) -> Figure:
    """Draw counts[client][class]; `runs` are named when the runs of a comparison differ in partition."""
    clients = [str(number) for number in range(len(partition.counts))]
    # Class names may be digits; as categories they keep their order and their spelling.
    classes = [plot_text(name) for name in partition.classes]
    totals = [sum(row) for row in partition.counts]
    by_client = [list(row) for row in partition.counts]
    by_class = [list(column) for column in zip(*partition.counts, strict=True)]
    written = len(clients) <= WRITTEN_UP_TO
    whose = f" of {', '.join(runs)}" if runs else ""
    return Figure(
        id=f"label-distribution-{number}",
        title=f"Label distribution{whose}",
        caption="Samples of each class that each client trains on, and the client's samples in total.",
        description=(
            f"Heat map of samples per class and client: {count(len(clients), 'client')}, "
            f"{len(classes)} classes, "
            f"{min(totals, default=0)} to {max(totals, default=0)} samples per client."
        ),
        views=(
            FigureView(
                label="samples",
                data=[
                    _heat(clients, classes, by_class, written, down=False),
                    _bars(clients, totals, down=False),
                ],
                layout=_desktop(len(classes)),
                narrow={
                    "data": [
                        _heat(classes, clients, by_client, written, down=True),
                        _bars(clients, totals, down=True),
                    ],
                    "layout": _phone(len(clients)),
                },
            ),
        ),
        wide=True,
        legend=False,
    )


def _heat(x: list[str], y: list[str], z: list[list[int]], written: bool, down: bool) -> Json:
    hover = "client %{y}, class %{x}: %{z}" if down else "client %{x}, class %{y}: %{z}"
    trace: Json = {
        "type": "heatmap",
        "x": x,
        "y": y,
        "z": z,
        "colorscale": [[0, "@heat0"], [1, "@heat1"]],
        "zmin": 0,
        "xgap": 1,
        "ygap": 1,
        "showscale": False,
        "hovertemplate": hover + "<extra></extra>",
    }
    if written:
        # Blank instead of 0, so that what a client does not hold shows as a gap.
        trace |= {"text": [[str(n) if n else "" for n in row] for row in z], "texttemplate": "%{text}"}
        trace["textfont"] = {"size": 10}
    return trace


def _bars(clients: list[str], totals: list[int], down: bool) -> Json:
    along: Json = (
        {"x": totals, "y": clients, "orientation": "h", "xaxis": "x2"} if down else {"x": clients, "y": totals}
    )
    return {
        "type": "bar",
        **along,
        **({} if down else {"yaxis": "y2"}),
        "marker": {"color": "@soft", "opacity": 0.6},
        "hovertemplate": ("client %{y}: %{x} samples" if down else "client %{x}: %{y} samples") + "<extra></extra>",
    }


def _desktop(classes: int) -> Json:
    return {
        "height": 150 + min(26 * classes, 520),
        "xaxis": {"type": "category", "title": {"text": "client"}, "showgrid": False, "nticks": 26},
        "yaxis": {"type": "category", "title": {"text": "class"}, "showgrid": False, "domain": [0, 0.78]}
        | {"autorange": "reversed", "dtick": 1 if classes <= 30 else None},
        "yaxis2": {"title": {"text": "samples"}, "domain": [0.83, 1], "nticks": 3, "rangemode": "tozero"},
        "bargap": 0.2,
        "hovermode": "closest",
    }


def _phone(clients: int) -> Json:
    return {
        "height": 110 + min(17 * clients, 1100),
        "xaxis": {"type": "category", "title": {"text": "class"}, "showgrid": False, "domain": [0, 0.76]},
        "xaxis2": {"title": {"text": "samples"}, "domain": [0.8, 1], "nticks": 2, "rangemode": "tozero"},
        "yaxis": {"type": "category", "title": {"text": "client"}, "showgrid": False, "autorange": "reversed"}
        | {"nticks": 26},
        "bargap": 0.2,
        "hovermode": "closest",
    }
