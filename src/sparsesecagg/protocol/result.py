"""What a round leaves behind: the sum, who is in it, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol.parameters import RoundParameters

Normalisation = Literal["observed", "expected"]


@dataclass(frozen=True)
class Result:
    """The outcome of a completed round, as the server knows it."""

    params: RoundParameters
    total: NDArray[np.int64]
    """Per coordinate: the sum of the survivors' quantised values, exact."""
    contributors_per_block: NDArray[np.int64]
    weight_per_block: NDArray[np.int64] | None
    """Per block: the sum of its contributors' private weights; None in a round without weights."""
    clipped: int | None
    """Values clipped by all contributors together; None if the pattern can't count them privately."""
    survivors: tuple[int, ...]
    """The users whose updates are in the sum."""
    dropped: Mapping[str, int]
    """By stage: how many users fell silent there."""
    sent_bytes: Mapping[str, tuple[int, ...]]
    """By stage: the size of each client's message."""
    received_bytes: Mapping[str, tuple[int, ...]]
    """By stage: the size of the server's message to each client, without the model itself."""
    false_shares: tuple[tuple[int, int], ...] = ()
    """Holder and owner of shares that were found false and left out; no more are looked for than the opening needs."""

    @property
    def contributors(self) -> NDArray[np.int64]:
        """Per coordinate: how many users are in the sum."""
        return self.params.layout.spread(self.contributors_per_block)

    def sum(self) -> NDArray[np.float64]:
        """Return the sum of the contributions as real numbers; of weight · update in a round with weights."""
        return self.params.quantizer.dequantize(self.total) * max(1, self.params.max_weight)

    def mean(self, normalisation: Normalisation = "observed") -> NDArray[np.float32]:
        """Return the mean update.

        "observed" divides each coordinate by the contributors, or the weight, that it really had: exact for whoever
        is in it, zero where nobody is. "expected" divides by p·(1−θ)·N as the paper does (Lemma 1): unbiased over
        patterns and dropouts, noisier in a single round, and only for rounds without private weights.
        """
        if normalisation == "expected":
            if self.params.max_weight:
                raise InvalidInput("normalisation", "must be 'observed' with private weights")
            expected = self.params.selection_probability * (1 - self.params.dropout) * self.params.clients
            return (self.sum() / expected).astype(np.float32)
        if normalisation != "observed":
            raise InvalidInput("normalisation", f"must be 'observed' or 'expected', not {normalisation!r}")
        divisor = self.contributors_per_block if self.weight_per_block is None else self.weight_per_block
        mean: NDArray[np.float32] = (self.sum() / self.params.layout.spread(np.maximum(divisor, 1))).astype(np.float32)
        return mean

    def mean_bytes(self, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, float]:
        """Return the mean per stage over those who took part in it, and their total."""
        means: dict[str, Any] = {stage: float(np.mean(values)) if values else 0.0 for stage, values in sizes.items()}
        return {**means, "total": sum(means.values())}
