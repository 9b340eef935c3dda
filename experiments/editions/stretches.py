"""Slices of several stretches of the model instead of one: the same protocol on coordinates in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.learning.aggregation import Aggregation
from sparsesecagg.lab.learning.models.base import Vector
from sparsesecagg.lab.learning.scaling import AdaptiveClip
from sparsesecagg.lab.learning.secure import SecureAggregator
from sparsesecagg.protocol import Stage


def interleaved(dim: int, slices: int, stretches: int) -> NDArray[np.int64]:
    """Return an order of the coordinates in which each slice is made of `stretches` pieces, evenly spread."""
    pieces = np.array_split(np.arange(dim), slices * stretches)
    return np.concatenate([piece for number in range(slices) for piece in pieces[number::slices]])


class Rearranged:
    """Any secure aggregator, with the coordinates in another order on their way through the protocol."""

    def __init__(self, inner: SecureAggregator, stretches: int) -> None:
        self._inner = inner
        self._order = interleaved(inner.parameters.dim, inner.parameters.committees, stretches)
        inner._clip = _Clip(inner._clip, self._order)  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def aggregate(
        self,
        updates: Mapping[int, Vector],
        weights: Sequence[int] | None,
        drops: Mapping[int, Stage],
        round_number: int,
        model_digest: bytes,
    ) -> Aggregation:
        """Run a round on the rearranged updates; the mean is back in the model's order."""
        rearranged = {user: update[self._order] for user, update in updates.items()}
        done = self._inner.aggregate(rearranged, weights, drops, round_number, model_digest)
        return done if done.mean is None else dataclasses.replace(done, mean=_back(done.mean, self._order))


class _Clip:
    """The clips of the layers, as the rearranged updates see them."""

    def __init__(self, inner: AdaptiveClip, order: NDArray[np.int64]) -> None:
        self._inner, self._order = inner, order

    @property
    def clips(self) -> NDArray[np.float64]:
        return self._inner.clips

    @clips.setter
    def clips(self, clips: NDArray[np.float64]) -> None:
        self._inner.clips = clips

    def per_coordinate(self) -> Vector:
        return self._inner.per_coordinate()[self._order]

    def follow(self, mean: Vector, updated: NDArray[np.bool_]) -> None:
        self._inner.follow(_back(mean, self._order), _back(updated, self._order))


def _back(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    original = np.empty_like(values)
    original[order] = values
    return original
