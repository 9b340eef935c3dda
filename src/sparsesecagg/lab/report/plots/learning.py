"""How well the model learns: accuracy and loss, by round and by what a user has sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsesecagg.lab.report.measures import cumulative_sent, cumulative_upload
from sparsesecagg.lab.report.plots.base import (
    HEIGHT,
    Figure,
    FigureView,
    Json,
    Series,
    coinciding,
    failed_marks,
    line,
    listing,
)
from sparsesecagg.lab.report.records import RoundLine, Run
from sparsesecagg.lab.report.words import Unit, bytes_text, percent, significant, unit_for

# Beyond this ratio between the runs' totals the small ones would be squeezed against the axis.
LOGARITHMIC_FROM = 5.0


def accuracy_by_round(series: Sequence[Series]) -> Figure:
    """Draw test accuracy after each round; failed rounds are marked."""
    described = [f"{s.run.name} ends at {percent(s.measures.accuracy)}" for s in series]
    return Figure(
        id="accuracy-by-round",
        title="Accuracy by round",
        caption="Test accuracy of the global model after each round. A cross marks a round that failed."
        + coinciding(series, lambda record: record.accuracy),
        description=f"Line plot of test accuracy against rounds: {listing(described)}.",
        views=(
            _by_round(
                series,
                lambda record: record.accuracy,
                title="test accuracy",
                hover="%{y:.1%}",
                axis={"tickformat": ".0%"},
            ),
        ),
    )


def loss_by_round(series: Sequence[Series]) -> Figure:
    """Draw test loss after each round."""
    last = [(s, [r.loss for r in s.run.rounds if r.loss is not None]) for s in series]
    described = [f"{s.run.name} ends at {significant(losses[-1])}" for s, losses in last if losses]
    return Figure(
        id="loss-by-round",
        title="Loss by round",
        caption="Test loss of the global model after each round." + coinciding(series, lambda record: record.loss),
        description=f"Line plot of test loss against rounds: {listing(described)}.",
        views=(
            _by_round(
                series,
                lambda record: record.loss,
                title="test loss",
                hover="%{y:.3f}",
                axis={"rangemode": "tozero"},
                height=260,
            ),
        ),
        wide=True,
    )


def accuracy_by_megabyte(series: Sequence[Series]) -> Figure:
    """Draw test accuracy against the bytes one user has sent: all messages, or the UPLOAD message only."""
    described = [
        f"{s.run.name} ends at {percent(s.measures.accuracy)} after {bytes_text(s.measures.sent_total)}" for s in series
    ]
    views = [
        _by_bytes(series, "All messages", cumulative_sent),
        _by_bytes(series, "UPLOAD only", cumulative_upload),
    ]
    return Figure(
        id="accuracy-by-megabyte",
        title="Accuracy by MB per user",
        caption="What one user has sent by then. UPLOAD carries the update; keys and shares come on top.",
        description=f"Line plot of test accuracy against bytes sent per user: {listing(described)}.",
        views=tuple(view for view in views if view.data),
    )


def _by_round(
    series: Sequence[Series],
    pick: Callable[[RoundLine], float | None],
    *,
    title: str,
    hover: str,
    axis: Json,
    height: int = HEIGHT,
) -> FigureView:
    data: list[Json] = []
    for s in series:
        known = [record for record in s.run.rounds if pick(record) is not None]
        if not known:
            continue
        data.append(line(s, [r.round for r in known], [pick(r) for r in known], hovertemplate=hover))
        failed = [record for record in known if record.failed]
        if failed:
            data.append(failed_marks(s, failed, [pick(r) for r in failed]))
    layout = {
        "xaxis": {"title": {"text": "round"}, **whole_numbers(series), "showgrid": False},
        "yaxis": {"title": {"text": title}, **axis},
        "hovermode": "x unified",
        "height": height,
    }
    return FigureView(label=title, data=data, layout=layout)


def _by_bytes(series: Sequence[Series], label: str, pick: Callable[[Run], list[float]]) -> FigureView:
    sent = [pick(s.run) for s in series]
    totals = [values[-1] for values in sent if values and values[-1] > 0]
    unit = unit_for(totals)
    data = [_bytes_line(s, values, unit) for s, values in zip(series, sent, strict=True) if values and values[-1] > 0]
    spread = bool(totals) and max(totals) >= LOGARITHMIC_FROM * min(totals)
    axis: Json = {"title": {"text": f"{unit.name} sent per user" + (" (logarithmic)" if spread else "")}}
    axis |= {"type": "log", "dtick": "D2", "tickformat": "~r"} if spread else {"rangemode": "tozero"}
    layout = {
        "xaxis": axis,
        "yaxis": {"title": {"text": "test accuracy"}, "tickformat": ".0%"},
        "hovermode": "closest",
        "height": HEIGHT,
    }
    return FigureView(label=label, data=data, layout=layout)


def _bytes_line(s: Series, values: list[float], unit: Unit) -> Json:
    known = [(r, value) for r, value in zip(s.run.rounds, values, strict=True) if r.accuracy is not None and value > 0]
    return line(
        s,
        [value / unit.size for _, value in known],
        [record.accuracy for record, _ in known],
        customdata=[record.round for record, _ in known],
        hovertemplate="%{y:.1%} in round %{customdata}<br>%{x:.3~r} " + unit.name,
    )


def whole_numbers(series: Sequence[Series]) -> Json:
    """Keep an axis of few rounds from showing halves of rounds."""
    most = max((len(s.run.rounds) for s in series), default=0)
    return {"dtick": 1} if most <= 10 else {"nticks": 8}
