"""What a run came to: the few figures that the page, its plots and the terminal's table share."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from sparsesecagg.lab.learning.aggregation import RoundLine, total
from sparsesecagg.lab.report.records import STAGES, Run

# SecAgg's UPLOAD: a header and one 32-bit word for every parameter.
SECAGG_HEADER_BYTES = 64
SECAGG_WORD_BYTES = 4


@dataclass(frozen=True)
class Measures:
    """One run in figures. Bytes are per user; means are over the rounds that worked, totals over all."""

    run: Run
    accuracy: float | None
    rounds: int
    failed: int
    reached_target_at: float | None
    upload_per_round: float
    sent_per_round: float
    received_per_round: float
    model_per_round: float
    sent_total: float
    exchanges: int | None  # Per round in steady state.
    coordinates_updated: float | None  # The mean fraction of the coordinates that a round updated.
    computing_seconds: float
    transfer_seconds: float
    deviation: float | None = None
    """The standard deviation of the accuracy over seeds; None for a single one. Other figures are their means."""
    upload_ratio: float | None = None
    sent_ratio: float | None = None  # SecAgg's bytes divided by the run's: of UPLOAD, and of all messages.

    @property
    def seeds(self) -> int:
        """How many runs it stands for."""
        return len(self.run.seeds) or 1

    @property
    def anonymity(self) -> int | None:
        """How many honest users every sum has at least; None where nobody knows."""
        users = self.run.setting("anonymity")
        return users if isinstance(users, int) else None


def measured(runs: Sequence[Run]) -> list[Measures]:
    """Sum up runs beside SecAgg: as measured if it is one of them, else its UPLOAD, computed from the model's size."""
    each = [measure(run) for run in runs]
    secagg = next((m for m in each if m.run.aggregator == "secagg" and m.sent_per_round), None)
    dim = next((dim for run in runs if isinstance(dim := run.config.get("dim"), int) and dim > 0), None)
    computed = None if dim is None else SECAGG_HEADER_BYTES + SECAGG_WORD_BYTES * dim
    upload, sent = (computed, None) if secagg is None else (secagg.upload_per_round, secagg.sent_per_round)
    return [
        replace(
            m,
            upload_ratio=upload / m.upload_per_round if upload and m.upload_per_round else None,
            sent_ratio=sent / m.sent_per_round if sent and m.sent_per_round else None,
        )
        for m in each
    ]


def measure(run: Run) -> Measures:
    """Sum up one run, or the means over the seeds of one; failed rounds are counted over all seeds."""
    if run.seeds:
        return _over_seeds(run)
    good = worked(run)
    updated = [record.coordinates_updated for record in good if record.coordinates_updated is not None]
    accuracies = [record.accuracy for record in run.rounds if record.accuracy is not None]
    return Measures(
        run=run,
        accuracy=accuracies[-1] if accuracies else None,
        rounds=len(run.rounds),
        failed=sum(record.failed for record in run.rounds),
        reached_target_at=_reached_target_at(run),
        upload_per_round=_mean_upload(run),
        sent_per_round=mean(record.all_sent_bytes for record in good),
        received_per_round=mean(record.all_received_bytes for record in good),
        model_per_round=mean(record.downlink_bytes for record in good),
        sent_total=sum(record.all_sent_bytes for record in run.rounds),
        exchanges=min((record.exchanges for record in run.rounds if record.exchanges is not None), default=None),
        coordinates_updated=mean(updated) if updated else None,
        computing_seconds=sum(
            record.training_seconds + total(record.client_seconds) + total(record.server_seconds)
            for record in run.rounds
        ),
        transfer_seconds=sum(record.transfer_seconds for record in run.rounds),
    )


def _over_seeds(run: Run) -> Measures:
    each = [vars(measure(one)) for one in run.seeds]
    columns = {name: [one[name] for one in each] for name in each[0] if name != "run"}
    means: dict[str, Any] = {name: None if None in row else statistics.fmean(row) for name, row in columns.items()}
    if means["accuracy"] is not None:
        means["deviation"] = statistics.stdev(columns["accuracy"])
    for name in ("rounds", "exchanges"):
        means[name] = means[name] and round(means[name])
    return Measures(run, **means | {"failed": sum(columns["failed"])})


def worked(run: Run) -> list[RoundLine]:
    """Return the rounds that gave an aggregate."""
    return [record for record in run.rounds if not record.failed]


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean, 0 of nothing."""
    kept = list(values)
    return sum(kept) / len(kept) if kept else 0.0


def _mean_upload(run: Run) -> float:
    """Return the mean of all UPLOAD messages that were sent, as `train` counts it; of the rounds where none counted."""
    sent = [(record.uploads, record.upload_bytes) for record in run.rounds if record.uploads]
    if not sent:
        return mean(record.upload_bytes for record in worked(run))
    return sum(uploads * size for uploads, size in sent) / sum(uploads for uploads, _ in sent)


def cumulative_sent(run: Run) -> list[float]:
    """Return the bytes of all messages a user has sent by the end of each round."""
    return list(accumulate(record.all_sent_bytes for record in run.rounds))


def mean_by_stage(run: Run, pick: Callable[[RoundLine], Mapping[str, float]]) -> dict[str, float]:
    """Average one measurement per stage over the rounds that worked; stages nobody measured are left out."""
    good = [pick(record) for record in worked(run)]
    return {stage: mean(r.get(stage, 0.0) for r in good) for stage in STAGES if any(stage in r for r in good)}


def contributors_distribution(run: Run) -> dict[int, float]:
    """Average the fraction of coordinates with k contributors over the rounds that recorded it."""
    recorded = [r.contributors_histogram for r in worked(run) if r.contributors_histogram]
    shares: Counter[int] = Counter()
    for histogram in recorded:
        shares.update({int(float(users)): fraction / len(recorded) for users, fraction in histogram.items()})
    return dict(sorted(shares.items()))


def _reached_target_at(run: Run) -> int | None:
    target = run.config.get("target_accuracy")
    if not isinstance(target, int | float) or isinstance(target, bool):
        return None
    return next((r.round for r in run.rounds if r.accuracy is not None and r.accuracy >= target), None)
