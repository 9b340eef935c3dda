"""What a plot is: a title, a sentence for those who can't see it, and one or more views of Plotly JSON.

Traces name their run in `meta.run`, so the page can hide a run in all plots at once. Colours are tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparsesecagg.lab.report.markup import plot_text
from sparsesecagg.lab.report.measures import Measures
from sparsesecagg.lab.report.palette import DASHES, SYMBOLS, Theme, painted
from sparsesecagg.lab.report.records import RoundLine, Run

Json = dict[str, Any]

HEIGHT = 320
WIDTHS = (5, 3.5, 2.5, 2)
SAME = 0.002
"""Curves that are never further apart than this coincide."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


@dataclass(frozen=True)
class Series:
    """One run as the plots see it: its figures, its name (escaped for plots), its place in the palette."""

    index: int
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
        """The token of the run's colour."""
        return f"@run{self.place}"

    @property
    def wash(self) -> str:
        """The token of the run's colour as a faint fill."""
        return f"@wash{self.place}"

    @property
    def symbol(self) -> str:
        """The run's marker."""
        return SYMBOLS[self.place]

    @property
    def dash(self) -> str:
        """The run's line style."""
        return DASHES[self.place]

    @property
    def meta(self) -> Json:
        """What the page needs to hide the run's traces."""
        return {"run": self.index}


@dataclass(frozen=True)
class FigureView:
    """One way to draw a figure; `narrow` holds the traces and layout for a phone where they differ."""

    label: str
    data: list[Json]
    layout: Json
    narrow: Json | None = None


@dataclass(frozen=True)
class Figure:
    """A plot with its words. `description` stands in for the picture where it can't be seen.

    `legend` says whether a saved picture needs one: not where the runs are named in the plot, or don't occur.
    """

    id: str
    title: str
    caption: str
    description: str
    views: tuple[FigureView, ...]
    wide: bool = False
    legend: bool = True

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(view.data for view in self.views)


def series_of(measures: Sequence[Measures], places: Sequence[int]) -> list[Series]:
    """Pair runs with their places in the palette."""
    return [Series(index, m, place) for index, (m, place) in enumerate(zip(measures, places, strict=True))]


def line(series: Series, x: Sequence[Any], y: Sequence[Any], **more: Any) -> Json:
    """Draw one run as a line with a few markers."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": series.name,
        "meta": series.meta,
        "x": list(x),
        "y": list(y),
        # Earlier runs are drawn wider, so that curves that coincide lie on each other and all of them can be seen.
        "line": {"color": series.color, "width": WIDTHS[min(series.index, len(WIDTHS) - 1)], "dash": series.dash},
        # Markers tell runs apart without colour; a dozen do that as well as a hundred.
        "marker": {"color": series.color, "size": 7, "symbol": series.symbol, "maxdisplayed": 12},
        **more,
    }


def coinciding(series: Sequence[Series], pick: Callable[[RoundLine], float | None]) -> str:
    """Return a sentence that names the runs whose curves lie on each other; nothing if none do."""
    groups: list[list[Series]] = []
    for s in series:
        for group in groups:
            if _same_curve(group[0], s, pick):
                group.append(s)
                break
        else:
            groups.append([s])
    told = [" and ".join(s.run.name for s in group) for group in groups if len(group) > 1]
    return f" Curves that coincide: {listing(told)}." if told else ""


def _same_curve(one: Series, other: Series, pick: Callable[[RoundLine], float | None]) -> bool:
    first, second = ([(r.round, pick(r)) for r in s.run.rounds if pick(r) is not None] for s in (one, other))
    if not first or [number for number, _ in first] != [number for number, _ in second]:
        return False
    return all(abs((a or 0) - (b or 0)) <= SAME for (_, a), (_, b) in zip(first, second, strict=True))


def bars(series: Series, categories: Sequence[str], values: Sequence[float], texts: Sequence[str], **more: Any) -> Json:
    """Draw one run's values as horizontal bars with the figure written at the end of each."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": series.name,
        "meta": series.meta,
        "y": list(categories),
        "x": list(values),
        "text": list(texts),
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": series.color},
        "hovertemplate": "%{y}: %{text}",
        **more,
    }


def bar_layout(series: Sequence[Series], categories: int, largest: float, title: str) -> Json:
    """Lay out grouped horizontal bars: one group per category, one bar per run, room for the figures."""
    return {
        "height": 92 + categories * (14 + 19 * len(series)),
        "barmode": "group",
        "bargap": 0.28,
        "yaxis": {"autorange": "reversed", "showgrid": False, "ticks": "", "ticklabelstandoff": 6},
        # A quarter more than the longest bar leaves room for the figure at its end.
        "xaxis": {"title": {"text": title}, "range": [0, 1.28 * (largest or 1)], "nticks": 5},
        "margin": {"l": 8, "r": 10, "t": 10, "b": 44},
        "hovermode": "closest",
    }


def failed_marks(series: Series, failed: Sequence[RoundLine], heights: Sequence[Any], **more: Any) -> Json:
    """Mark failed rounds with a cross that tells the reason when pointed at."""
    reasons = [plot_text(r.reason or "no reason recorded") for r in failed]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{series.name}: failed",
        "meta": series.meta,
        "x": [record.round for record in failed],
        "y": list(heights),
        "customdata": reasons,
        "marker": {"color": "@bad", "size": 10, "symbol": "x-thin", "line": {"color": "@bad", "width": 2.5}},
        "hovertemplate": "%{customdata}",
        "showlegend": False,
        **more,
    }


def levelled(figures: Sequence[Figure]) -> list[Figure]:
    """Give figures that stand side by side the same height."""
    beside = [view.layout for figure in figures if not figure.wide for view in figure.views]
    height = max((layout["height"] for layout in beside), default=HEIGHT)
    for layout in beside:
        layout["height"] = height
    return list(figures)


def listing(parts: Sequence[str]) -> str:
    """Join descriptions of runs into one sentence part."""
    return "; ".join(parts)


def as_json(figure: Figure) -> Json:
    """Return what the page's script draws."""
    views = [
        {"label": view.label, "data": view.data, "layout": view.layout, "narrow": view.narrow} for view in figure.views
    ]
    return {"id": figure.id, "title": plot_text(figure.title), "legend": figure.legend, "views": views}


def template(theme: Theme) -> Json:
    """Return the Plotly template of a theme: calm axes, transparent ground, the page's own font."""
    axis = {
        "gridcolor": "@grid",
        "linecolor": "@grid",
        "zerolinecolor": "@grid",
        "tickcolor": "@grid",
        "tickfont": {"color": "@soft", "size": 12},
        "title": {"font": {"color": "@soft", "size": 12}, "standoff": 8},
        "automargin": True,
        "zeroline": False,
    }
    layout = {
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "size": 12,
            "color": "@ink",
        },
        "paper_bgcolor": "@surface",
        "plot_bgcolor": "@clear",
        "xaxis": axis,
        "yaxis": axis,
        "showlegend": False,
        "margin": {"l": 8, "r": 14, "t": 10, "b": 40},
        "hoverlabel": {
            "bgcolor": "@surface",
            "bordercolor": "@grid",
            "font": {"family": FONT, "color": "@ink", "size": 12},
        },
    }
    return {"layout": painted(layout, theme)}
