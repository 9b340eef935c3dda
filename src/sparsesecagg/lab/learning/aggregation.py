"""What a round gives, as a line of metrics.jsonl; what an aggregator is; and averaging without masks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.learning.models import Vector
from sparsesecagg.protocol import STAGES, Stage

_FLOAT_BYTES = 4


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
    uploads: int | None = None  # How many sent an upload.
    upload_bytes: float = 0.0  # The mean of their UPLOAD messages.
    sent_bytes: dict[str, float] = {}
    received_bytes: dict[str, float] = {}
    downlink_bytes: float = 0.0  # The model on its way down, whole or in steps.
    exchanges: int | None = None
    coordinates_updated: float | None = None
    gain: float | None = None  # What the mean was multiplied by.
    groups_opened: int | None = None
    lost: dict[str, int] = {}  # By reason: groups whose sum was not opened.
    client_seconds: dict[str, float] = {}
    server_seconds: dict[str, float] = {}
    training_seconds: float = 0.0
    transfer_seconds: float = 0.0
    """Computing is measured, transfer is modelled: they are never added up without being shown apart."""
    contributors: dict[str, float | None] = {}  # Mean and least number of users whose values went into a coordinate.
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


class Aggregation(RoundLine, frozen=True, kw_only=True, eq=False):
    """What a round gave and cost: its line, as far as the aggregator knows it, and the step that follows from it."""

    step: Vector | None
    """What the model moves by: gain times the mean update, 0 where nothing arrived; None if the round failed."""


class Aggregator:
    """Turns the updates of one round after another into steps of the model.

    This one averages without any protection, every value a 32-bit float: the yardstick for accuracy, bytes and time.
    What an aggregator learns from one round for the next must be public, and goes through `state` and `restore`, so
    that a resumed run continues as if nothing had happened.
    """

    exchanges = 1  # How often a user and the server talk in a round, the set-up not counted.

    def __init__(self, clients: int, dim: int) -> None:
        self.clients, self.dim = clients, dim

    def aggregate(
        self,
        updates: Mapping[int, Vector],
        weights: Sequence[int] | None,
        drops: Mapping[int, Stage],
        round_number: int,  # noqa: ARG002
        model_digest: bytes,  # noqa: ARG002 (binds masks, and there are none)
    ) -> Aggregation:
        """Return the step that follows from the mean of the survivors' updates, or why there is none.

        `updates` holds an update for every user that is `taking_part`. `drops` says who drops out, and
        at which stage. `weights` are whole numbers, one per user, or None for equal ones. Rounds are numbered from 1.
        """
        users = uploaders(self.clients, drops)
        heavy = {user: 1 if weights is None else weights[user] for user in users}
        started = time.perf_counter()
        total = np.zeros(self.dim, np.float64)
        for user in users:
            total += heavy[user] * updates[user].astype(np.float64)
        seconds = time.perf_counter() - started
        size = float(_FLOAT_BYTES * self.dim)
        return Aggregation(
            step=(total / sum(heavy.values())).astype(np.float32) if users else None,
            reason=None if users else "nobody was left at UPLOAD",
            survivors=len(users),
            dropped={stage.name: list(drops.values()).count(stage) for stage in STAGES},
            upload_bytes=size,
            uploads=len(users),
            sent_bytes=_upload_only(size if users else 0.0),
            received_bytes=_upload_only(0.0),
            client_seconds=_upload_only(0.0),
            server_seconds=_upload_only(seconds),
            clipped=0,
            exchanges=self.exchanges,
            gain=1.0,
            **(count_contributors(np.full(1, len(users))) if users else {}),
            coordinates_updated=1.0 if users else 0.0,
        )

    def taking_part(self, clients: int, drops: Mapping[int, Stage]) -> list[int]:
        """Return the users that will be asked for an update in the next round, and are there to send it."""
        return uploaders(clients, drops)

    def turns(self) -> NDArray[np.int32] | None:
        """Return a number for each coordinate, equal ones for those that change together; None if all may change."""
        return None

    def epsilon(self, rounds: int, delta: float) -> float | None:  # noqa: ARG002
        """Return the ε of differential privacy that these rounds have cost each user; None without noise."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return what the options came to, for the record."""
        return {"alpha": 1.0}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what the next round depends on."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go back to a state that `state` gave."""


def uploaders(clients: int, drops: Mapping[int, Stage]) -> list[int]:
    """Return the users that are there at UPLOAD: all but those that dropped out by then."""
    arrived = set(STAGES[STAGES.index(Stage.UPLOAD) + 1 :])
    return [user for user in range(clients) if user not in drops or drops[user] in arrived]


def count_contributors(per_coordinate: NDArray[np.integer]) -> dict[str, Any]:
    """Return two fields of a round's line: how many users' values went into its coordinates."""
    numbers, times = np.unique(per_coordinate, return_counts=True)
    fractions = dict(zip(map(str, numbers.tolist()), (times / times.sum()).tolist(), strict=True))
    figures = {"mean": float(per_coordinate.mean()), "min": int(numbers[0])}
    return {"contributors": figures, "contributors_histogram": fractions}


def _upload_only(value: float) -> dict[str, float]:
    return {Stage.UPLOAD.name: value, "total": value}


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
