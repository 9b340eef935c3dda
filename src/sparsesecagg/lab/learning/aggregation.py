"""What every aggregator is, the updates of a round's users in, their mean and what it cost out; and plain averaging."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.learning.metrics import ContributorFigures, RoundLine
from sparsesecagg.lab.learning.models import Vector
from sparsesecagg.protocol import STAGES, Stage

_FLOAT_BYTES = 4


class Aggregation(RoundLine, frozen=True, kw_only=True, eq=False):
    """What a round gave and cost: its line, as far as the aggregator knows it, and the step that follows from it."""

    step: Vector | None
    """What the model moves by: gain times the mean update, 0 where nothing arrived; None if the round failed."""


class Aggregator(ABC):
    """Turns the updates of one round after another into steps of the model.

    What an aggregator learns from one round for the next must be public, and goes through `state` and `restore`, so
    that a resumed run continues as if nothing had happened.
    """

    name: str
    exchanges: int
    """How often a user and the server talk in a round, the set-up not counted."""

    @abstractmethod
    def aggregate(
        self,
        updates: Mapping[int, Vector],
        weights: Sequence[int] | None,
        drops: Mapping[int, Stage],
        round_number: int,
        model_digest: bytes,
    ) -> Aggregation:
        """Return the step that follows from the mean of the survivors' updates, or why there is none.

        `updates` holds an update for every user that is `taking_part`. `drops` says who drops out, and
        at which stage. `weights` are whole numbers, one per user, or None for equal ones. Rounds are numbered from 1.
        """

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
        return {}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what the next round depends on."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:  # noqa: B027 (most have no state)
        """Go back to a state that `state` gave."""


class PlainAggregator(Aggregator):
    """Averages without any protection, every value a 32-bit float: the yardstick for accuracy, bytes and time."""

    name = "plain"
    exchanges = 1

    def __init__(self, clients: int, dim: int) -> None:
        self.clients, self.dim = clients, dim

    def describe(self) -> dict[str, Any]:
        """Return the fraction that is sent."""
        return {"alpha": 1.0}

    def aggregate(
        self,
        updates: Mapping[int, Vector],
        weights: Sequence[int] | None,
        drops: Mapping[int, Stage],
        round_number: int,  # noqa: ARG002
        model_digest: bytes,  # noqa: ARG002 (binds masks, and there are none)
    ) -> Aggregation:
        """Return the mean; costs are those of one message per user."""
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


def uploaders(clients: int, drops: Mapping[int, Stage]) -> list[int]:
    """Return the users that are there at UPLOAD: all but those that dropped out by then."""
    arrived = set(STAGES[STAGES.index(Stage.UPLOAD) + 1 :])
    return [user for user in range(clients) if user not in drops or drops[user] in arrived]


def count_contributors(per_coordinate: NDArray[np.integer]) -> dict[str, Any]:
    """Return two fields of a round's line: how many users' values went into its coordinates."""
    numbers, times = np.unique(per_coordinate, return_counts=True)
    fractions = dict(zip(map(str, numbers.tolist()), (times / times.sum()).tolist(), strict=True))
    mean = ContributorFigures(float(per_coordinate.mean()), int(numbers[0]))
    return {"contributors": mean, "contributors_histogram": fractions}


def _upload_only(value: float) -> dict[str, float]:
    return {Stage.UPLOAD.name: value, "total": value}
