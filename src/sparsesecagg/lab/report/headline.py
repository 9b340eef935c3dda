"""What came out, in plain words: the headline of a report and the sentences under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsesecagg.lab.report.measures import Baseline, Measures, measure, sent_ratio, upload_ratio
from sparsesecagg.lab.report.records import Run
from sparsesecagg.lab.report.words import against, bytes_text, count, percent, share

# Whose result a comparison is about, in this order; the others are what it is compared with.
LEADS = ("sliced", "secagg-plus", "pairwise", "secagg", "plain-topk", "plain-randk", "plain")

PUBLISHED = "pairwise"
PAIRWISE_WARNING = (
    "pairwise: its masks join only a few users at each coordinate, so dropouts and colluders can leave "
    "values readable however many contributors there are. It is here to reproduce and study the published "
    "protocol, not to protect anyone."
)


@dataclass(frozen=True)
class Headline:
    """The first screen of a report."""

    title: str
    sentences: tuple[str, ...]
    warning: str | None


def headline(measures: Sequence[Measures], secagg: Baseline | None) -> Headline:
    """Say what came out of the runs, from the point of view of the one they are about."""
    lead = _lead(measures)
    # SecAgg is not compared with itself.
    other = None if lead.run.aggregator == "secagg" else secagg
    failed = [f"{m.failed} of {m.rounds * m.seeds} in {m.run.name}" for m in measures if m.failed]
    return Headline(
        title=_title(lead, other),
        sentences=(
            *_cost(lead, other),
            *_chance(measures),
            *([f"Rounds that failed and left the model as it was: {', '.join(failed)}."] if failed else []),
        ),
        warning=_warning(measures),
    )


def in_short(runs: Sequence[Run]) -> str | None:
    """Say in one sentence what the run that a comparison is about costs and saves beside plain training, or SecAgg."""
    measures = [measure(run) for run in runs]
    other = next((m for name in ("plain", "secagg") for m in measures if m.run.aggregator == name), None)
    lead = _lead(measures)
    users = lead.run.setting("anonymity")
    if other is None or other is lead or lead.accuracy is None or other.accuracy is None or not lead.sent_per_round:
        return None
    ratio = other.sent_per_round / lead.sent_per_round
    usual = "plain training" if other.run.aggregator == "plain" else "SecAgg"
    server = "even a malicious server" if lead.run.setting("authenticated") else "a server that follows the protocol"
    reads = f"{server} sees only sums of {users} honest users or more, never one user's update"
    return (
        f"With {lead.run.name} each user sends {bytes_text(lead.sent_per_round)} a round, "
        f"{against(ratio, f'with {usual}')} ({bytes_text(other.sent_per_round)}); the model reaches "
        f"{percent(lead.accuracy, lead.deviation)}, with {usual} {percent(other.accuracy, other.deviation)}"
        + (f"; and {reads}." if isinstance(users, int) and users > 1 else ".")
    )


def _lead(measures: Sequence[Measures]) -> Measures:
    return min(measures, key=lambda m: LEADS.index(m.run.aggregator) if m.run.aggregator in LEADS else len(LEADS))


def _title(lead: Measures, secagg: Baseline | None) -> str:
    name = lead.run.name
    if not lead.rounds:
        return f"{name}: no round has finished yet"
    if lead.failed == lead.rounds * lead.seeds:
        return f"{name}: {'the only round' if lead.rounds == 1 else f'all {lead.rounds} rounds'} failed"
    reached = f"{name} reaches {percent(lead.accuracy)} accuracy" if lead.accuracy is not None else name
    sent = f"each user sends {bytes_text(lead.sent_total)} in {count(lead.rounds, 'round')}"
    whole, upload = sent_ratio(lead, secagg), upload_ratio(lead, secagg)
    if whole is not None:
        sent += f", per round {against(whole, 'SecAgg')}"
    elif upload is not None:
        sent += f", and uploads {against(upload, 'SecAgg')}"
    return f"{reached}; {sent}"


def _cost(lead: Measures, secagg: Baseline | None) -> list[str]:
    """Say what a round costs a user: the UPLOAD message and everything together."""
    if lead.failed == lead.rounds * lead.seeds:
        return []
    upload = f"A round's UPLOAD message is {bytes_text(lead.upload_per_round)}"
    ratio = upload_ratio(lead, secagg)
    if ratio is not None and secagg is not None:
        source = "measured" if secagg.measured else "computed for 32-bit words, it was not run"
        upload += f", {against(ratio, 'SecAgg')} ({bytes_text(secagg.upload)}, {source})"
    whole = f"with keys, shares and unmasking a user sends {bytes_text(lead.sent_per_round)} a round"
    if lead.received_per_round:
        whole += f" and receives {bytes_text(lead.received_per_round)}"
        if lead.model_per_round:
            whole += f", {bytes_text(lead.model_per_round)} of it the model"
    return [f"{upload}; {whole}."]


def _chance(measures: Sequence[Measures]) -> list[str]:
    """Say how far accuracies that are compared may differ by chance."""
    if len(measures) > 1 and all(m.seeds == 1 for m in measures):
        return ["One seed per run: a difference of a point or so in accuracy may be chance."]
    told = [f"{m.run.name} {percent(m.accuracy, m.deviation)} ({count(m.seeds, 'seed')})" for m in measures]
    if all(m.seeds == 1 for m in measures):
        return []
    return [f"Accuracy over seeds, mean ± standard deviation: {', '.join(told)}."]


def _warning(measures: Sequence[Measures]) -> str | None:
    """Say what `pairwise` does not protect, with the figure where the run recorded one."""
    pairwise = next((m.run for m in measures if m.run.aggregator == PUBLISHED), None)
    if pairwise is None:
        return None
    if not (exposed := pairwise.expected_exposure):
        return PAIRWISE_WARNING
    return f"{PAIRWISE_WARNING} Here the server is expected to read {share(exposed)} of what users upload."
