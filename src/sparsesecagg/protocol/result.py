"""What a round leaves behind: the sum, who is in it, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol.combine import Total
from sparsesecagg.protocol.parameters import Parameters

Normalisation = Literal["observed", "expected"]


@dataclass(frozen=True)
class Result:
    """The outcome of a completed round, as the server knows it."""

    params: Parameters
    round_number: int
    combined: Total
    members: int
    """Users whose key packages were used."""
    survivors: tuple[int, ...]
    """The users that are in the sum."""
    lost: Mapping[int, str]
    """By group whose sum was not opened: why."""
    dropped: Mapping[str, int]
    """By stage: how many users dropped out there."""
    sent_bytes: Mapping[str, tuple[int, ...]]
    """By stage: the size of each client's message."""
    received_bytes: Mapping[str, tuple[int, ...]]
    """By stage: the size of the server's message to each client, without the model itself."""
    false_shares: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By user that sent false shares, or was dealt false ones: the owners of the secrets."""
    excluded: Mapping[int, str] = field(default_factory=dict)
    """By user that gets no more rounds since this one: why."""

    @property
    def total(self) -> NDArray[np.int64]:
        """Per coordinate: the sum of the survivors' integers, exact; zero where nothing was opened."""
        return self.combined.values.astype(np.int64)

    @property
    def contributors(self) -> NDArray[np.int64]:
        """Per coordinate: how many users are in the sum; zero where nothing was opened."""
        return self.combined.contributors.astype(np.int64)

    @property
    def clipped(self) -> int | None:
        """Values clipped by all contributors together; None if the pattern can't count them privately."""
        return self.combined.clipped

    @property
    def updated(self) -> NDArray[np.bool_]:
        """Per coordinate: whether anything was opened there."""
        return self.combined.contributors > 0

    @property
    def coordinates_updated(self) -> float:
        """The fraction of the coordinates that somebody's value is in."""
        return int(np.count_nonzero(self.combined.contributors)) / self.params.dim

    @property
    def groups_opened(self) -> int:
        """How many groups' sums were opened."""
        return self.params.groups - len(self.lost)

    def sum(self) -> NDArray[np.float64]:
        """Return the sum of the contributions as real numbers; of weight · update in a run with weights."""
        return self.combined.sum_of(self.params)

    def mean(self, normalisation: Normalisation = "observed", total_weight: int | None = None) -> NDArray[np.float32]:
        """Return the mean update; zero, so that the model stays as it is, where nothing was opened.

        "observed" divides each coordinate by the contributors, or the weight, that it really had: exact for whoever
        is in it. "expected" divides by p·(1−θ)·M as the paper does (Lemma 1; M users take part): unbiased over patterns
        and dropouts, noisier in a single round. With private weights it takes the public `total_weight` of all users.
        """
        if normalisation == "expected":
            expected = self.params.shape.fraction(self.members) * (1 - self.params.dropout) * self.members
            if self.params.max_weight:
                if not total_weight or total_weight < 0:
                    raise InvalidInput(
                        "total_weight", "must be positive: the sum of all users' weights, which is public"
                    )
                expected *= total_weight / self.params.clients
            return (self.sum() / expected).astype(np.float32)
        if normalisation != "observed":
            raise InvalidInput("normalisation", f"must be 'observed' or 'expected', got {normalisation!r}")
        if self.params.max_weight and self.combined.weights is None:
            raise InvalidInput("normalisation", "must be 'expected' where weights do not travel beside the values")
        return self.combined.mean_of(self.params)

    @staticmethod
    def mean_bytes(sizes: Mapping[str, tuple[int, ...]]) -> dict[str, float]:
        """Return the mean per stage over those who took part in it, and their total."""
        means: dict[str, Any] = {stage: float(np.mean(values)) if values else 0.0 for stage, values in sizes.items()}
        return {**means, "total": sum(means.values())}
