"""Means that a few malicious users can't move far: centred clipping over groups that send the same slice.

Masks hide what a single user sends, so one user can set its group's sum to any value of the word. What the server sees
is one sum per group. Centred clipping (Karimireddy, He, Jaggi, arXiv 2012.10333) begins at 0.9 times the last aggregate
and repeats a few times

    v ← v + 1/K · Σ_g w_g·(m_g − v),    w_g = min(1, (τ/‖m_g − v‖)²),    τ = median of ‖m_g − v‖

With w_g = min(1, τ/‖m_g − v‖), as published, a group far away keeps the influence of one at the radius τ; here it loses
it. It stands fewer than half bad groups, so about one bad user per two groups. One group has no such defence.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import require
from sparsesecagg.protocol.combine import ByGroup, Total
from sparsesecagg.protocol.parameters import Parameters

_ITERATIONS = 3
"""The last aggregate may be some rounds old where rounds send different slices; the radius shrinks as v settles."""


class CentredClipping:
    """Makes the combiner of each round and remembers the last aggregate: `Server(…, combine=CentredClipping())`."""

    def __init__(self, decay: float = 0.9) -> None:
        require("decay", 0 <= decay <= 1, f"must be in [0, 1], got {decay}")
        self.decay = decay
        self.last: NDArray[np.float32] | None = None
        """The last aggregate, NumPy zeros where there was none."""

    def __call__(self, params: Parameters) -> ByGroup:
        """Return the combiner of one round."""
        return _Clipping(params, self)


class Median(ByGroup):
    """The median of the groups, coordinate by coordinate: stands fewer than half bad groups, and is less exact."""

    def total(self) -> Total:
        """Return the sums as they are, and the median in place of the mean."""
        total = super().total()
        means = [mean for _, mean in total.groups] or [np.zeros(self.params.dim, np.float32)]
        return replace(total, robust=np.median(means, axis=0).astype(np.float32))


class _Clipping(ByGroup):
    def __init__(self, params: Parameters, memory: CentredClipping) -> None:
        super().__init__(params)
        self._memory = memory

    def total(self) -> Total:
        """Return the sums as they are, and the clipped mean in place of the plain one."""
        total, memory = super().total(), self._memory
        where = total.contributors > 0
        last = np.zeros(self.params.dim, np.float32) if memory.last is None else memory.last
        mean = np.where(where, np.float32(memory.decay) * last, np.float32(0))
        for _ in range(_ITERATIONS):
            away = [np.where(where, each - mean, np.float32(0)) for _, each in total.groups]
            lengths = [float(np.linalg.norm(each)) for each in away]
            radius = float(np.median(lengths)) if lengths else 0.0
            for each, length in zip(away, lengths, strict=True):
                mean += each * np.float32((min(1.0, (radius / length) ** 2) if length else 0.0) / len(away))
        memory.last = np.where(where, mean, last)
        return replace(total, robust=mean)
