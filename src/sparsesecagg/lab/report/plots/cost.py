"""What a round costs a user and the server, by stage.

Computing is measured and transfer is modelled (a simulated network), so they never share a bar or a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sparsesecagg.lab.report.measures import mean, mean_by_stage, worked
from sparsesecagg.lab.report.plots.base import Figure, FigureView, Json, Series, bar_layout, bars, listing
from sparsesecagg.lab.report.records import STAGES, RoundLine
from sparsesecagg.lab.report.words import BYTE_UNITS, SECOND_UNITS, Unit, unit_for

TRAINING = "local training"
MODEL = "the model"
COMPUTING = "computing, measured"
TRANSFER = "transfer, simulated network"


def bytes_sent(series: Sequence[Series]) -> Figure:
    """Draw what one user sends in a round, by stage."""
    # Plain averaging records no stages: its one message is the upload.
    rows = [mean_by_stage(s.run, lambda r: r.sent_bytes or {"UPLOAD": r.upload_bytes}) for s in series]
    words = Words("Bytes sent by stage", "What one user sends in a round, on average: the codec's real sizes.")
    return _figure("bytes-sent", words, series, rows, BYTE_UNITS)


def bytes_received(series: Sequence[Series]) -> Figure:
    """Draw what one user receives in a round, by stage."""
    rows = _rows_beside(MODEL, lambda r: r.downlink_bytes, series, lambda r: r.received_bytes)
    caption = "What one user receives in a round, on average, and the model on its way down, whole or in steps."
    return _figure("bytes-received", Words("Bytes received by stage", caption), series, rows, BYTE_UNITS)


def client_seconds(series: Sequence[Series]) -> Figure:
    """Draw what one user computes in a round, by stage, with local training for scale."""
    rows = _rows_beside(TRAINING, lambda r: r.training_seconds, series, lambda r: r.client_seconds)
    caption = "Computing of one user, measured. Local training is no part of the protocol, but gives the scale."
    return _figure("client-seconds", Words("User's seconds by stage", caption), series, rows, SECOND_UNITS)


def server_seconds(series: Sequence[Series]) -> Figure:
    """Draw what the server computes in a round, by stage."""
    rows = [mean_by_stage(s.run, lambda r: r.server_seconds) for s in series]
    words = Words("Server's seconds by stage", "Computing of the server in a round, measured.", "per round")
    return _figure("server-seconds", words, series, rows, SECOND_UNITS)


def computing_and_transfer(series: Sequence[Series]) -> Figure:
    """Draw the time of the whole run: measured computing and modelled transfer, apart."""
    rows = [{COMPUTING: s.measures.computing_seconds, TRANSFER: s.measures.transfer_seconds} for s in series]
    caption = (
        "Computing was measured: one user's, since users work side by side, and the server's. Transfer (hatched) "
        f"is modelled, never measured: a simulated network{_networks(series)}."
    )
    words = Words("Time of the whole run", caption, "in all rounds")
    figure = _figure("computing-and-transfer", words, series, rows, SECOND_UNITS)
    for trace in figure.views[0].data:
        shapes = ["/" if name == TRANSFER else "" for name in trace["y"]]
        trace["marker"]["pattern"] = {"shape": shapes, "fillmode": "overlay"}
    return replace(figure, wide=True)


def _networks(series: Sequence[Series]) -> str:
    """Describe the simulated networks as far as the runs recorded them."""
    found = {
        f"{bandwidth:g} Mbit/s and {latency:g} ms"
        for config in (s.run.config for s in series)
        if isinstance(bandwidth := config.get("bandwidth_mbit"), int | float)
        and isinstance(latency := config.get("latency_ms"), int | float)
    }
    return f" of {' or '.join(sorted(found))}" if found else ""


@dataclass(frozen=True)
class Words:
    """What is written around a bar chart."""

    title: str
    caption: str
    per: str = "per user and round"


def _rows_beside(
    name: str,
    pick: Callable[[RoundLine], float],
    series: Sequence[Series],
    by_stage: Callable[[RoundLine], Mapping[str, float]],
) -> list[dict[str, float]]:
    """Return one measurement by stage, after another of the whole round where there is one."""
    rows = [(mean(pick(record) for record in worked(s.run)), mean_by_stage(s.run, by_stage)) for s in series]
    return [{name: first, **staged} if first else staged for first, staged in rows]


def _figure(
    identity: str,
    words: Words,
    series: Sequence[Series],
    rows: Sequence[Mapping[str, float]],
    units: tuple[Unit, ...],
) -> Figure:
    """Draw one group of bars per category, in the order of the protocol; `rows` has each run's values."""
    values = [value for row in rows for value in row.values()]
    unit = unit_for(values, units)
    order = [name for name in (TRAINING, MODEL, *STAGES, COMPUTING, TRANSFER) if any(name in row for row in rows)]
    data: list[Json] = []
    described: list[str] = []
    for s, row in zip(series, rows, strict=True):
        kept = [name for name in order if name in row]
        # Each figure in its own best unit: 64 B says more than 0.064 kB beside a bar too short to see.
        texts = [unit_for([row[name]], units).text(row[name]) for name in kept]
        if kept:
            data.append(bars(s, kept, [row[name] / unit.size for name in kept], texts))
            pairs = zip(kept, texts, strict=True)
            described.append(f"{s.run.name}: " + ", ".join(f"{name} {text}" for name, text in pairs))
    largest = max(values, default=0.0) / unit.size
    layout = bar_layout(series, len(order), largest, f"{unit.name} {words.per}")
    layout["yaxis"] |= {"categoryorder": "array", "categoryarray": order}
    return Figure(
        id=identity,
        title=words.title,
        caption=words.caption,
        description=f"Bar chart. {words.title}. {listing(described)}.",
        views=(FigureView(unit.name, data, layout),),
    )
