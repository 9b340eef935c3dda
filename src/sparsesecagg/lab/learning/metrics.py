"""From one round to its line in metrics.jsonl, with the totals of the rounds so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sparsesecagg.lab.learning.aggregation import Aggregation
from sparsesecagg.lab.learning.models import Evaluation
from sparsesecagg.lab.learning.network import Network
from sparsesecagg.lab.report.records import ContributorFigures, RoundLine


def round_line(
    number: int,
    evaluation: Evaluation,
    done: Aggregation,
    network: Network,
    *,
    downlink_bytes: float,
    training_seconds: float,
    before: Mapping[str, Any] | None,
) -> RoundLine:
    """Return the line of a round; `before` is the last one's. Computing is measured, transfer is modelled.

    Users compute side by side, so the computing of a round is one user's and the server's.
    """
    received = done.received_bytes["total"] + downlink_bytes
    transfer = network.transfer_seconds(done.sent_bytes["total"], received, done.exchanges)
    computing = training_seconds + done.client_seconds["total"] + done.server_seconds["total"]
    loss = evaluation.loss / evaluation.samples
    so_far = before or {
        "cumulative_upload_bytes": 0.0,
        "cumulative_downlink_bytes": 0.0,
        "cumulative_seconds": {"computing": 0.0, "transfer": 0.0},
    }
    seconds = so_far["cumulative_seconds"]
    return RoundLine(
        round=number,
        accuracy=evaluation.correct / evaluation.samples,
        loss=loss if math.isfinite(loss) else None,
        status="failed" if done.step is None else "ok",
        reason=done.reason,
        survivors=done.survivors,
        dropped=done.dropped,
        uploads=done.uploads,
        upload_bytes=done.upload_bytes,
        sent_bytes=done.sent_bytes,
        received_bytes=done.received_bytes,
        downlink_bytes=downlink_bytes,
        exchanges=done.exchanges,
        coordinates_updated=done.coordinates_updated,
        gain=done.gain,
        groups_opened=done.groups_opened,
        lost=done.lost,
        client_seconds=done.client_seconds,
        server_seconds=done.server_seconds,
        training_seconds=training_seconds,
        transfer_seconds=transfer,
        contributors=ContributorFigures(done.contributors.mean, done.contributors.min)
        if done.contributors
        else ContributorFigures(),
        contributors_histogram=done.contributors.histogram if done.contributors else {},
        clipped=done.clipped,
        exact=done.exact,
        cumulative_upload_bytes=so_far["cumulative_upload_bytes"] + done.upload_bytes,
        cumulative_downlink_bytes=so_far["cumulative_downlink_bytes"] + downlink_bytes,
        cumulative_seconds={
            "computing": seconds["computing"] + computing,
            "transfer": seconds["transfer"] + transfer,
        },
    )
