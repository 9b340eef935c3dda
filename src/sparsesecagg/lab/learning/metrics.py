"""What is recorded of a round, and what runs add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparsesecagg.lab.learning.aggregation import Aggregation


@dataclass(frozen=True)
class Totals:
    """Sums over the rounds so far, for one user."""

    upload_bytes: float = 0.0
    downlink_bytes: float = 0.0
    computing_seconds: float = 0.0
    transfer_seconds: float = 0.0

    @classmethod
    def after(cls, lines: Sequence[dict[str, Any]]) -> Totals:
        """Read the totals of the last recorded round."""
        if not lines:
            return cls()
        seconds = lines[-1]["cumulative_seconds"]
        return cls(
            lines[-1]["cumulative_upload_bytes"],
            lines[-1]["cumulative_downlink_bytes"],
            seconds["computing"],
            seconds["transfer"],
        )


@dataclass(frozen=True)
class RoundMetrics:
    """One line of metrics.jsonl. Computing is measured; transfer is modelled from bandwidth and latency."""

    round: int
    accuracy: float
    loss: float | None
    """None if it is too large for a number."""
    aggregation: Aggregation
    downlink_bytes: float
    """The model on its way down: mean per user that took part, in steps or whole."""
    training_seconds: float
    """Mean local training per user."""
    transfer_seconds: float
    totals: Totals
    """Those of the rounds before."""

    @property
    def totals_after(self) -> Totals:
        """The totals with this round. Users compute side by side, so computing is one user's and the server's."""
        done = self.aggregation
        computing = self.training_seconds + done.client_seconds["total"] + done.server_seconds["total"]
        return Totals(
            self.totals.upload_bytes + done.upload_bytes,
            self.totals.downlink_bytes + self.downlink_bytes,
            self.totals.computing_seconds + computing,
            self.totals.transfer_seconds + self.transfer_seconds,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the line."""
        done, totals = self.aggregation, self.totals_after
        contributors = done.contributors
        return {
            "round": self.round,
            "accuracy": self.accuracy,
            "loss": self.loss,
            "status": "failed" if done.mean is None else "ok",
            "reason": done.reason,
            "survivors": done.survivors,
            "dropped": done.dropped,
            "uploads": done.uploads,
            "upload_bytes": done.upload_bytes,
            "sent_bytes": done.sent_bytes,
            "received_bytes": done.received_bytes,
            "downlink_bytes": self.downlink_bytes,
            "exchanges": done.exchanges,
            "coordinates_updated": done.coordinates_updated,
            "committees_opened": done.committees_opened,
            "lost": done.lost,
            "client_seconds": done.client_seconds,
            "server_seconds": done.server_seconds,
            "training_seconds": self.training_seconds,
            "transfer_seconds": self.transfer_seconds,
            "contributors": {
                "mean": contributors.mean if contributors else None,
                "min": contributors.min if contributors else None,
            },
            "contributors_histogram": contributors.histogram if contributors else {},
            "clipped": done.clipped,
            "exact": done.exact,
            "cumulative_upload_bytes": totals.upload_bytes,
            "cumulative_downlink_bytes": totals.downlink_bytes,
            "cumulative_seconds": {"computing": totals.computing_seconds, "transfer": totals.transfer_seconds},
        }
