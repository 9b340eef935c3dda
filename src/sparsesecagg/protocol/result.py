"""What a round leaves behind: the sum, who is in it, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol.parameters import Parameters

Normalisation = Literal["observed", "expected"]


@dataclass(frozen=True)
class Result:
    """The outcome of a completed round, as the server knows it."""

    params: Parameters
    round_number: int
    values: NDArray[np.signedinteger[Any]]
    """`total` in the shortest type that holds it."""
    counts: NDArray[np.unsignedinteger[Any]]
    """`contributors_per_slice` in the shortest type that holds it."""
    weight_per_slice: NDArray[np.int64] | None
    """Per slice: the sum of its contributors' private weights; None in a run without weights."""
    clipped: int | None
    """Values clipped by all contributors together; None if the pattern can't count them privately."""
    survivors: tuple[int, ...]
    """The users whose uploads arrived; those of committees that were lost are not in the sum."""
    lost: Mapping[int, str]
    """By committee whose sum was not opened: why."""
    committees_opened: int
    """How many committees' sums were opened."""
    dropped: Mapping[str, int]
    """By stage: how many users dropped out there."""
    sent_bytes: Mapping[str, tuple[int, ...]]
    """By stage: the size of each client's message."""
    received_bytes: Mapping[str, tuple[int, ...]]
    """By stage: the size of the server's message to each client, without the model itself."""
    false_shares: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By user that sent false shares, or was dealt false ones: the owners of the secrets."""

    @property
    def total(self) -> NDArray[np.int64]:
        """Per coordinate: the sum of the survivors' quantised values, exact; zero where nothing was opened."""
        return self.values.astype(np.int64)

    @property
    def contributors_per_slice(self) -> NDArray[np.int64]:
        """Per slice (per coordinate in `pairwise`): how many users are in the sum; zero where nothing was opened."""
        return self.counts.astype(np.int64)

    @property
    def contributors(self) -> NDArray[np.int64]:
        """Per coordinate: how many users are in the sum."""
        return self.params.slices.spread(self.contributors_per_slice)

    @property
    def updated(self) -> NDArray[np.bool_]:
        """Per coordinate: whether anything was opened there."""
        return self.contributors > 0

    @property
    def coordinates_updated(self) -> float:
        """The fraction of the coordinates that somebody's value is in."""
        return self.params.slices.coordinates(self.counts > 0) / self.params.dim

    def sum(self) -> NDArray[np.float64]:
        """Return the sum of the contributions as real numbers; of weight · update in a run with weights."""
        return self.params.quantizer.dequantize(self.values) * max(1, self.params.max_weight)

    def mean(self, normalisation: Normalisation = "observed") -> NDArray[np.float32]:
        """Return the mean update; zero, so that the model stays as it is, where nothing was opened.

        "observed" divides each coordinate by the contributors, or the weight, that it really had: exact for whoever
        is in it. "expected" divides by p·(1−θ)·N as the paper does (Lemma 1): unbiased over patterns and dropouts,
        noisier in a single round, and only for runs without private weights.
        """
        if normalisation == "expected":
            if self.params.max_weight:
                raise InvalidInput("normalisation", "must be 'observed' with private weights")
            expected = self.params.selection_probability * (1 - self.params.dropout) * self.params.clients
            return (self.sum() / expected).astype(np.float32)
        if normalisation != "observed":
            raise InvalidInput("normalisation", f"must be 'observed' or 'expected', got {normalisation!r}")
        divisor = self.counts if self.weight_per_slice is None else self.weight_per_slice
        mean: NDArray[np.float32] = (self.sum() / self.params.slices.spread(np.maximum(divisor, 1))).astype(np.float32)
        return mean

    @staticmethod
    def mean_bytes(sizes: Mapping[str, tuple[int, ...]]) -> dict[str, float]:
        """Return the mean per stage over those who took part in it, and their total."""
        means: dict[str, Any] = {stage: float(np.mean(values)) if values else 0.0 for stage, values in sizes.items()}
        return {**means, "total": sum(means.values())}
