"""What came out, in plain words: the headline of a report and the sentences under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .measures import Baseline, Measures
from .words import against, bytes_text, count, percent, seconds_text, times

# Whose result a comparison is about, in this order; the others are what it is compared with.
LEADS = ("committee", "secagg-plus", "pairwise", "secagg", "plain-topk", "plain-randk", "plain")


@dataclass(frozen=True)
class Tile:
    """One figure to see first: what it is, the figure, and what goes with it."""

    label: str
    figure: str
    note: str


@dataclass(frozen=True)
class Headline:
    """The first screen of a report."""

    lead: Measures
    title: str
    sentences: tuple[str, ...]
    tiles: tuple[Tile, ...]


def headline(measures: Sequence[Measures], secagg: Baseline | None) -> Headline:
    """Say what came out of the runs, from the point of view of the one they are about."""
    lead = min(measures, key=_rank)
    sentences = [*_cost(lead, secagg), *_others(lead, measures), *_failures(measures), *_warnings(measures)]
    return Headline(lead=lead, title=_title(lead), sentences=tuple(sentences), tiles=_tiles(lead, secagg))


def upload_ratio(m: Measures, secagg: Baseline | None) -> float | None:
    """Return SecAgg's UPLOAD bytes divided by the run's."""
    return secagg.upload / m.upload_per_round if secagg and m.upload_per_round else None


def sent_ratio(m: Measures, secagg: Baseline | None) -> float | None:
    """Return SecAgg's bytes of all messages divided by the run's; unknown when SecAgg was not run."""
    return secagg.sent / m.sent_per_round if secagg and secagg.sent and m.sent_per_round else None


def _rank(m: Measures) -> int:
    name = m.run.aggregator
    return LEADS.index(name) if name in LEADS else len(LEADS)


def _title(lead: Measures) -> str:
    name = lead.run.name
    if not lead.rounds:
        return f"{name}: no round has finished yet"
    if lead.failed == lead.rounds:
        return f"{name}: {'the only round' if lead.rounds == 1 else f'all {lead.rounds} rounds'} failed, nothing was learned"
    accuracy = f"{percent(lead.accuracy)} accuracy" if lead.accuracy is not None else "trained"
    return (
        f"{name}: {accuracy} after {count(lead.rounds, 'round')}, {bytes_text(lead.sent_total)} sent per user"
    )


def _cost(lead: Measures, secagg: Baseline | None) -> list[str]:
    if lead.failed == lead.rounds:
        return []
    sentence = f"Each round a user uploads {bytes_text(lead.upload_per_round)}"
    ratio = upload_ratio(lead, secagg)
    if ratio is not None and secagg is not None and lead.run.aggregator != "secagg":
        source = (
            "" if secagg.measured else f" (computed: {bytes_text(secagg.upload)} for a model of this size)"
        )
        sentence += f", {against(ratio, 'SecAgg')}{source}"
    sentence += f". With keys, shares and unmasking it sends {bytes_text(lead.sent_per_round)}"
    whole = sent_ratio(lead, secagg)
    if whole is not None and lead.run.aggregator != "secagg":
        sentence += f", {against(whole, 'SecAgg')}"
    return [sentence + "."]


def _others(lead: Measures, measures: Sequence[Measures]) -> list[str]:
    rest = [m for m in measures if m is not lead and m.accuracy is not None]
    if not rest:
        return []
    ends = [f"{m.run.name} {percent(m.accuracy)} with {bytes_text(m.sent_total)}" for m in rest]
    return [f"Beside it, per user: {', '.join(ends)}."]


def _failures(measures: Sequence[Measures]) -> list[str]:
    failed = [f"{m.failed} of {m.rounds} in {m.run.name}" for m in measures if m.failed]
    return [f"Rounds that failed and left the model as it was: {', '.join(failed)}."] if failed else []


def _warnings(measures: Sequence[Measures]) -> list[str]:
    if any(m.run.aggregator == "pairwise" for m in measures):
        return [
            "Its masks join only a few users at each coordinate, so dropouts and colluders can leave values "
            "readable however many contributors there are. It is here to reproduce and study the published "
            "protocol, not to protect anyone."
        ]
    return []


def _tiles(lead: Measures, secagg: Baseline | None) -> tuple[Tile, ...]:
    upload, sent = upload_ratio(lead, secagg), sent_ratio(lead, secagg)
    source = "measured beside it" if secagg and secagg.measured else "computed from the model's size"
    return (
        Tile("Accuracy", percent(lead.accuracy), f"best {percent(lead.best_accuracy)}"),
        Tile(
            "Sent per user",
            bytes_text(lead.sent_total),
            f"{bytes_text(lead.sent_per_round)} a round, {bytes_text(lead.upload_per_round)} of it UPLOAD",
        ),
        Tile(
            "Smaller UPLOAD than SecAgg",
            times(upload),
            (f"{times(sent)} counting all messages, " if sent is not None else "") + source
            if upload is not None
            else "the model's size is not recorded",
        ),
        Tile(
            "Computing, measured",
            seconds_text(lead.computing_seconds),
            f"and {seconds_text(lead.transfer_seconds)} of transfer on a simulated network",
        ),
    )
