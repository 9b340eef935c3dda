"""Who took part: contributors per coordinate of the aggregate, dropouts and failures per round."""

from __future__ import annotations

from collections.abc import Sequence

from sparsesecagg.lab.report.measures import contributors_distribution, fewest_contributors
from sparsesecagg.lab.report.plots.base import HEIGHT, Figure, FigureView, Json, Series, failed_marks, listing
from sparsesecagg.lab.report.plots.learning import whole_numbers
from sparsesecagg.lab.report.records import STAGES
from sparsesecagg.lab.report.words import count, significant

# Later stages are drawn stronger: a user who leaves late has cost the others more.
STAGE_OPACITY = {stage: 0.3 + 0.7 * place / (len(STAGES) - 1) for place, stage in enumerate(STAGES)}


def contributors(series: Sequence[Series]) -> Figure:
    """Draw which share of the coordinates had how many contributors."""
    data: list[Json] = []
    described = []
    for s in series:
        shares = contributors_distribution(s.run)
        if not shares:
            continue
        # Steps need the empty counts too, and one on either side to come down to zero.
        counts = list(range(max(0, min(shares) - 1), max(shares) + 2))
        data.append(_steps(s, counts, [shares.get(k, 0.0) for k in counts]))
        average = sum(k * share for k, share in shares.items()) / (sum(shares.values()) or 1)
        fewest = fewest_contributors(s.run)
        described.append(
            f"{s.run.name} {significant(average)} on average"
            + (f", at least {significant(fewest)}" if fewest is not None else "")
        )
    layout = {
        "xaxis": {"title": {"text": "users whose value is in the sum"}, "rangemode": "nonnegative"},
        "yaxis": {"title": {"text": "share of coordinates"}, "tickformat": ".0%", "rangemode": "tozero"},
        "hovermode": "closest",
        "height": _height(len(series)),
    }
    caption = "How many users' values each coordinate of the sum holds; the smallest count is the weakest spot. "
    return Figure(
        id="contributors",
        title="Contributors per coordinate",
        caption=caption + ("Per run: " + listing(described) + "." if described else "No run recorded it."),
        description=f"Step plot of the share of coordinates by number of contributors: {listing(described)}.",
        views=(FigureView("share", data, layout),),
    )


def dropouts(every: Sequence[Series]) -> Figure:
    """Draw the users lost in each round by stage, failed rounds marked: one row for all runs that lost the same."""
    data: list[Json] = []
    alike: dict[str, list[Series]] = {}
    for s in every:
        alike.setdefault(repr([(r.round, r.dropped, r.failed) for r in s.run.rounds]), []).append(s)
    series = [group[0] for group in alike.values()]
    whose = {group[0].index: ", ".join(s.name for s in group) for group in alike.values()}
    layout: Json = {
        "barmode": "stack",
        "bargap": 0.15,
        "hovermode": "x unified",
        "height": _height(len(series)),
        "annotations": [],
        "margin": {"l": 8, "r": 14, "t": 24, "b": 40},
    }
    described = []
    gap = 0.3 / len(series) if len(series) > 1 else 0.0
    height = (1 - gap * (len(series) - 1)) / max(1, len(series))
    rows = [_Row(s) for s in series]
    most = max((max(row.totals, default=0) for row in rows), default=0)
    for number, (s, row) in enumerate(zip(series, rows, strict=True)):
        suffix = "" if number == 0 else str(number + 1)
        top = 1 - number * (height + gap)
        placed = {"xaxis": "x", "yaxis": f"y{suffix}"}
        data += [trace | placed for trace in _shared(row.traces, "," not in whose[s.index])]
        layout[f"yaxis{suffix}"] = {
            "domain": [max(0.0, top - height), top],
            # The same scale in every row, with room for the cross over the tallest bar.
            "range": [0, 1.25 * max(most, 2)],
            "nticks": 4,
            "title": {"text": "users"} if len(series) == 1 else {},
        }
        if len(series) > 1:
            layout["annotations"].append(
                {
                    "text": whose[s.index],
                    "xref": "paper",
                    "yref": "paper",
                    "x": 0,
                    "y": top,
                    "yanchor": "bottom",
                    "xanchor": "left",
                }
                | {"showarrow": False, "font": {"color": "@ink", "size": 12}}
            )
        described.append(
            f"{whose[s.index]} lost {count(sum(row.totals), 'user')}, {count(s.measures.failed, 'round')} failed"
        )
    bottom = "y" if len(series) <= 1 else f"y{len(series)}"
    layout["xaxis"] = {
        "title": {"text": "round"},
        **whole_numbers(series),
        "anchor": bottom,
        "showgrid": False,
    }
    return Figure(
        id="dropouts",
        title="Dropouts by round",
        caption=(
            "Users who dropped out, by the stage they left at: faint for ADVERTISE_KEYS, full for UNMASK. Who has no "
            "package for a round counts at SHARE_KEYS. "
            "A cross marks a failed round."
            + (" The same users drop out in all runs, so they are shown once." if len(series) == 1 < len(every) else "")
        ),
        description=f"Bar chart of users lost in each round, by stage: {listing(described)}.",
        views=(FigureView("users", data, layout),),
        legend=False,
    )


def _shared(row: list[Json], alone: bool) -> list[Json]:
    """Leave a row that stands for several runs on the page when one of them is hidden."""
    return row if alone else [{name: value for name, value in trace.items() if name != "meta"} for trace in row]


class _Row:
    """One run's dropouts: a stack of bars per round and the crosses of failed rounds."""

    def __init__(self, series: Series) -> None:
        rounds = series.run.rounds
        self.totals = [sum(n for stage, n in r.dropped.items() if stage in STAGES) for r in rounds]
        self.traces: list[Json] = [
            {
                "type": "bar",
                "name": f"{series.name}: {stage}",
                "meta": series.meta,
                "x": [record.round for record in rounds],
                "y": [record.dropped.get(stage, 0) for record in rounds],
                "marker": {"color": series.color, "opacity": STAGE_OPACITY[stage]},
                "hovertemplate": "%{y}",
            }
            for stage in STAGES
            if any(record.dropped.get(stage) for record in rounds)
        ]
        if rounds and not self.traces:
            # A row of zeros: nobody dropped out, which is worth seeing as such.
            zeros: Json = {"type": "bar", "name": series.name, "meta": series.meta, "hovertemplate": "none"}
            self.traces.append(zeros | {"x": [r.round for r in rounds], "y": [0 for _ in rounds]})
        failed = [(r, t) for r, t in zip(rounds, self.totals, strict=True) if r.failed]
        if failed:
            lift = 0.1 * max(2, *self.totals)
            self.traces.append(failed_marks(series, [r for r, _ in failed], [t + lift for _, t in failed]))


def _height(runs: int) -> int:
    return max(HEIGHT, 80 + 96 * runs)


def _steps(series: Series, counts: list[int], shares: list[float]) -> Json:
    """Draw a histogram as a filled outline, which stays readable when several overlap."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": series.name,
        "meta": series.meta,
        "x": counts,
        "y": shares,
        "line": {"color": series.color, "width": 2, "shape": "hvh", "dash": series.dash},
        "fill": "tozeroy",
        "fillcolor": series.wash,
        "hovertemplate": "%{x} contributors: %{y:.1%} of coordinates",
    }
