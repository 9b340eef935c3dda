"""What a round costs a user and the server, by stage.

Computing is measured and transfer is modelled (a simulated network), so they never share a bar or a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..measures import mean, mean_by_stage, worked
from ..records import STAGES, RoundRecord
from ..words import SECOND_UNITS, bytes_text, seconds_text, unit_for
from .base import Figure, Json, Series, View, bar_layout, bars, listing

TRAINING = "local training"
COMPUTING = "computing, measured"
TRANSFER = "transfer, simulated network"

StageValues = Callable[[RoundRecord], Mapping[str, float]]


def bytes_sent(series: Sequence[Series]) -> Figure:
    """Draw what one user sends in a round, by stage."""
    # Plain averaging records no stages: its one message is the upload.
    rows = [_staged(s, lambda r: r.sent_bytes or {"UPLOAD": r.upload_bytes}) for s in series]
    return _bytes_figure(
        series,
        rows,
        "bytes-sent",
        "Bytes sent by stage",
        "What one user sends in a round, on average: the codec's real sizes.",
    )


def bytes_received(series: Sequence[Series]) -> Figure:
    """Draw what one user receives in a round, by stage."""
    rows = [_staged(s, lambda r: r.received_bytes) for s in series]
    return _bytes_figure(
        series,
        rows,
        "bytes-received",
        "Bytes received by stage",
        "What one user receives in a round, on average, without the model itself.",
    )


def client_seconds(series: Sequence[Series]) -> Figure:
    """Draw what one user computes in a round, by stage, with local training for scale."""
    rows = []
    for s in series:
        training = mean(record.training_seconds for record in worked(s.run))
        rows.append(({TRAINING: training} if training else {}) | _staged(s, lambda r: r.client_seconds))
    return _seconds_figure(
        series,
        rows,
        "client-seconds",
        "User's seconds by stage",
        "Computing of one user in a round, measured. Local training is no part of the protocol, but gives the scale.",
    )


def server_seconds(series: Sequence[Series]) -> Figure:
    """Draw what the server computes in a round, by stage."""
    rows = [_staged(s, lambda r: r.server_seconds) for s in series]
    return _seconds_figure(
        series,
        rows,
        "server-seconds",
        "Server's seconds by stage",
        "Computing of the server in a round, measured.",
    )


def computing_and_transfer(series: Sequence[Series]) -> Figure:
    """Draw the time of the whole run: measured computing and modelled transfer, apart."""
    rows = [{COMPUTING: s.measures.computing_seconds, TRANSFER: s.measures.transfer_seconds} for s in series]
    figure = _seconds_figure(
        series,
        rows,
        "computing-and-transfer",
        "Time of the whole run",
        "Computing was measured. Transfer (hatched) is modelled on a simulated network, never measured.",
    )
    for trace in (trace for view in figure.views for trace in view.data):
        trace["marker"]["pattern"] = {
            "shape": ["/" if name == TRANSFER else "" for name in trace["y"]],
            "fillmode": "overlay",
        }
    return Figure(figure.id, figure.title, figure.caption, figure.description, figure.views, wide=True)


def _staged(series: Series, pick: StageValues) -> dict[str, float]:
    return mean_by_stage(series.run, pick)


def _bytes_figure(
    series: Sequence[Series], rows: list[dict[str, float]], identity: str, title: str, caption: str
) -> Figure:
    view = _view(
        series, rows, unit_for(v for row in rows for v in row.values()).name, bytes_text, _byte_size(rows)
    )
    return Figure(identity, title, caption, _described(title, series, rows, bytes_text), (view,))


def _seconds_figure(
    series: Sequence[Series], rows: list[dict[str, float]], identity: str, title: str, caption: str
) -> Figure:
    unit = unit_for((v for row in rows for v in row.values()), SECOND_UNITS)
    view = _view(series, rows, unit.name, seconds_text, unit.size)
    return Figure(identity, title, caption, _described(title, series, rows, seconds_text), (view,))


def _byte_size(rows: list[dict[str, float]]) -> float:
    return unit_for(v for row in rows for v in row.values()).size


def _view(
    series: Sequence[Series],
    rows: list[dict[str, float]],
    unit: str,
    write: Callable[[float], str],
    size: float,
) -> View:
    """Draw one group of bars per category, in the order of the protocol."""
    order = [name for name in (TRAINING, *STAGES, COMPUTING, TRANSFER) if any(name in row for row in rows)]
    data: list[Json] = []
    for s, row in zip(series, rows, strict=True):
        kept = [name for name in order if name in row]
        if kept:
            data.append(
                bars(s, kept, [row[name] / size for name in kept], [write(row[name]) for name in kept])
            )
    largest = max((value / size for row in rows for value in row.values()), default=0.0)
    layout = bar_layout(series, len(order), largest, unit)
    layout["yaxis"] |= {"categoryorder": "array", "categoryarray": order}
    return View(label=unit, data=data, layout=layout)


def _described(
    title: str, series: Sequence[Series], rows: list[dict[str, float]], write: Callable[[float], str]
) -> str:
    runs = [
        f"{s.run.name}: " + ", ".join(f"{name} {write(value)}" for name, value in row.items())
        for s, row in zip(series, rows, strict=True)
        if row
    ]
    return f"Bar chart. {title}. {listing(runs)}."
