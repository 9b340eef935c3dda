"""One round as a line of metrics.jsonl. Reports read the same lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec


class ContributorFigures(msgspec.Struct, frozen=True):
    """How many users' values went into a coordinate of the aggregate, over all coordinates of one round."""

    mean: float | None = None
    min: float | None = None


class RoundLine(msgspec.Struct, frozen=True):
    """One line of metrics.jsonl, as training writes it and reports read it.

    Bytes and client seconds are means per client; what an engine does not know stays empty.
    """

    round: int = 0
    status: Literal["ok", "failed"] = "ok"
    reason: str | None = None
    accuracy: float | None = None
    loss: float | None = None
    survivors: int | None = None
    dropped: dict[str, int] = {}
    uploads: int | None = None
    """How many sent an upload."""
    upload_bytes: float = 0.0
    """The mean of their UPLOAD messages."""
    sent_bytes: dict[str, float] = {}
    received_bytes: dict[str, float] = {}
    downlink_bytes: float = 0.0
    """The model on its way down, whole or in steps."""
    exchanges: int | None = None
    coordinates_updated: float | None = None
    gain: float | None = None
    """What the mean was multiplied by."""
    groups_opened: int | None = None
    lost: dict[str, int] = {}
    """By reason: groups whose sum was not opened."""
    client_seconds: dict[str, float] = {}
    server_seconds: dict[str, float] = {}
    training_seconds: float = 0.0
    transfer_seconds: float = 0.0
    """Computing is measured, transfer is modelled: they are never added up without being shown apart."""
    contributors: ContributorFigures = ContributorFigures()
    contributors_histogram: dict[str, float] = {}
    clipped: int | None = None
    exact: bool | None = None
    """The sum in the field was that of the survivors' own quantised values; None where nobody knows."""

    @property
    def failed(self) -> bool:
        """Whether the round left the model as it was."""
        return self.status == "failed"

    @property
    def all_sent_bytes(self) -> float:
        """Bytes of all messages a client sent: over all stages, or the upload where nothing else was sent."""
        return total(self.sent_bytes) or self.upload_bytes

    @property
    def all_received_bytes(self) -> float:
        """Bytes of all messages a client received, the model included."""
        return total(self.received_bytes) + self.downlink_bytes


def total(by_stage: Mapping[str, float]) -> float:
    """Return the recorded total, or the sum over the stages where none was recorded."""
    return by_stage["total"] if "total" in by_stage else sum(by_stage.values())


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Give nested values names such as sent_bytes.UPLOAD; histograms, whose keys differ by run, are left out."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key == "lost":  # By reason, which is free text.
            found[f"{prefix}lost"] = sum(value.values())
        elif isinstance(value, Mapping):
            found |= {} if key == "contributors_histogram" else flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
