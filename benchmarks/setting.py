"""What is compared: how many take part, with which updates, and who drops out; the same for every system."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Policy
from sparsesecagg.simulate import Cohort

CLIP = 1.0
"""The largest magnitude of an update's coordinate; ours and the peer's quantisers get the same."""

ANYBODY = Cohort(Policy(min_anonymity=1, patterns=frozenset(PATTERNS)))
"""Simulated users take part in whatever is measured, `pairwise` too."""

_ABORTS = 0.01
"""SecAgg+ takes the smallest degree with which at most this fraction of the rounds lacks shares."""


@dataclass(frozen=True)
class Setting:
    """The settings of one comparison."""

    clients: int
    dim: int
    alpha: float
    dropout: float
    modulus_bits: int
    """Of the sparse systems. SecAgg and SecAgg+ use 32 bits, as published; Flower's modulus is 2^32."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.clients < 3:
            raise InvalidInput("clients", f"must be at least 3, got {self.clients}")
        if self.dim < 1:
            raise InvalidInput("dim", f"must be at least 1, got {self.dim}")
        if not 0 <= self.dropout < 0.5:
            raise InvalidInput("dropout", f"must be in [0, 0.5), got {self.dropout}")

    @cached_property
    def noise(self) -> NDArray[np.float32]:
        """What the updates are cut from."""
        rng = np.random.default_rng(self.seed)
        noise = rng.standard_normal(self.dim + self.clients, np.float32)
        noise *= np.float32(CLIP / 10)
        return noise

    def update(self, user: int) -> NDArray[np.float32]:
        """Return a user's update: a window of the common noise, so that N updates take the memory of one."""
        return self.noise[user : user + self.dim]

    @cached_property
    def dropped(self) -> frozenset[int]:
        """Who drops out at UPLOAD, having shared its keys: the dropout that costs most to repair."""
        rng = np.random.default_rng([self.seed, 1])
        return frozenset(rng.choice(self.clients, round(self.dropout * self.clients), replace=False).tolist())

    @cached_property
    def survivors(self) -> tuple[int, ...]:
        """Whose updates are in the sum."""
        return tuple(user for user in range(self.clients) if user not in self.dropped)

    def mean(self) -> NDArray[np.float64]:
        """Return the plain mean of the survivors' updates."""
        total = np.zeros(self.dim)
        for user in self.survivors:
            total += self.update(user)
        return total / len(self.survivors)

    @property
    def majority(self) -> int:
        """The threshold of a complete share graph."""
        return self.clients // 2 + 1

    def plus_degree(self) -> int | None:
        """Return the degree of SecAgg+: the smallest even one that rarely lacks shares; None if only all will do."""
        for degree in range(4, self.clients - 1, 2):
            if self.clients * _lacking(degree, 1 - self.dropout) <= _ABORTS:
                return degree
        return None

    def settings(self) -> dict[str, Any]:
        """Return what goes into a result file."""
        return asdict(self)


def _lacking(degree: int, alive: float) -> float:
    """Return P[fewer than a majority of a dropped user's neighbours survive]."""
    needed = (degree + 1) // 2 + 1
    return sum(comb(degree, k) * alive**k * (1 - alive) ** (degree - k) for k in range(needed))
