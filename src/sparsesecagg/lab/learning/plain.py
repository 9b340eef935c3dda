"""Averaging without any protection: the yardsticks for accuracy, bytes and time.

`plain` sends every value as a 32-bit float. `plain-randk` sends a random fraction α (the server knows which from a
seed), `plain-topk` the fraction α that is largest, with its locations. Nothing is corrected for what was not sent in
an earlier round: the secure patterns can't do that either.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.aggregation import Aggregation, Aggregator, count_contributors, count_dropped, uploaders
from sparsesecagg.lab.learning.models.base import Vector
from sparsesecagg.lab.learning.seeds import Purpose, generator
from sparsesecagg.protocol import Stage

Reals = NDArray[np.float64]

_FLOAT_BYTES = 4
_INDEX_BYTES = 4
_SEED_BYTES = 32


class PlainAggregator(Aggregator):
    """The weighted mean of all values; the sparse ones below differ in what they send."""

    exchanges = 1

    def __init__(self, name: str, clients: int, dim: int) -> None:
        self.name = name
        self.clients = clients
        self.dim = self.kept = dim

    def describe(self) -> dict[str, Any]:
        """Return the fraction that is really sent."""
        return {"alpha": self.kept / self.dim}

    def aggregate(
        self,
        updates: Mapping[int, Vector],
        weights: Sequence[int] | None,
        drops: Mapping[int, Stage],
        round_number: int,
        model_digest: bytes,  # noqa: ARG002 (binds masks, and there are none)
    ) -> Aggregation:
        """Return the mean; costs are those of one message per user."""
        users = uploaders(self.clients, drops)
        total, weight_sum = np.zeros(self.dim, np.float64), np.zeros(self.dim, np.float64)
        contributors = np.zeros(self.dim, np.int64)
        client_seconds = server_seconds = 0.0
        for user in users:
            weight = 1 if weights is None else weights[user]
            started = time.perf_counter()
            sent = self._select(updates[user], user, round_number)
            selected = time.perf_counter()
            total[sent] += weight * updates[user][sent].astype(np.float64)
            weight_sum[sent] += weight
            contributors[sent] += 1
            client_seconds += selected - started
            server_seconds += time.perf_counter() - selected
        all_weights = len(users) if weights is None else sum(weights[user] for user in users)
        size = self._upload_bytes()
        return Aggregation(
            step=self._divide(total, weight_sum, all_weights).astype(np.float32) if users else None,
            reason=None if users else "nobody was left at UPLOAD",
            survivors=len(users),
            dropped=count_dropped(drops),
            upload_bytes=size,
            uploads=len(users),
            sent_bytes=_upload_only(size if users else 0.0),
            received_bytes=_upload_only(0.0),
            client_seconds=_upload_only(client_seconds / max(1, len(users))),
            server_seconds=_upload_only(server_seconds),
            clipped=0,
            exchanges=self.exchanges,
            gain=1.0,
            **(count_contributors(contributors) if users else {}),
            coordinates_updated=float(np.count_nonzero(contributors)) / self.dim,
        )

    def _select(self, update: Vector, user: int, round_number: int) -> NDArray[np.int64] | slice:  # noqa: ARG002
        """Return the coordinates that a user sends."""
        return slice(None)

    def _divide(self, total: Reals, weight_sum: Reals, all_weights: int) -> Reals:  # noqa: ARG002
        """Return the mean, given the weight that arrived at each coordinate and that of all survivors."""
        return total / all_weights

    def _upload_bytes(self) -> float:
        return float(_FLOAT_BYTES * self.dim)


class RandomK(PlainAggregator):
    """Everybody sends a random fraction α; each coordinate is the mean over those who sent it.

    The locations follow from a seed, which travels with the values.
    """

    def __init__(self, name: str, clients: int, dim: int, alpha: float, seed: int) -> None:
        super().__init__(name, clients, dim)
        self.kept = kept_values(alpha, dim)
        self._seed = seed

    def _select(self, update: Vector, user: int, round_number: int) -> NDArray[np.int64] | slice:
        random = generator(self._seed, Purpose.SPARSITY, round_number, user)
        return random.choice(len(update), self.kept, replace=False, shuffle=False)

    def _divide(self, total: Reals, weight_sum: Reals, all_weights: int) -> Reals:  # noqa: ARG002
        return total / np.where(weight_sum > 0, weight_sum, 1)

    def _upload_bytes(self) -> float:
        return float(_FLOAT_BYTES * self.kept + _SEED_BYTES)


class TopK(PlainAggregator):
    """Everybody sends the fraction α of largest magnitude; what was not sent counts as zero.

    Dividing by the senders alone would overrate the coordinates that only few found large.
    """

    def __init__(self, name: str, clients: int, dim: int, alpha: float) -> None:
        super().__init__(name, clients, dim)
        self.kept = kept_values(alpha, dim)

    def _select(self, update: Vector, user: int, round_number: int) -> NDArray[np.int64] | slice:  # noqa: ARG002
        return np.argpartition(-np.abs(update), self.kept - 1)[: self.kept]

    def _upload_bytes(self) -> float:
        locations = min(_INDEX_BYTES * self.kept, -(-self.dim // 8))  # a list or a bitmap, whichever is smaller
        return float(_FLOAT_BYTES * self.kept + locations)


def kept_values(alpha: float, dim: int) -> int:
    """Return how many of `dim` values a fraction `alpha` is; raise `InvalidInput` if it is none."""
    kept = int(alpha * dim)
    if kept < 1:
        raise InvalidInput(
            "alpha", f"of {alpha:g} sends nothing of a model of {dim} parameters: use {1 / dim:.3g} or more"
        )
    return kept


def _upload_only(value: float) -> dict[str, float]:
    return {Stage.UPLOAD.name: value, "total": value}
