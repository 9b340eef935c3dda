"""From the opened sums of groups to the result of a round: the one place that knows more than one group.

`Sum` adds them up, `ByGroup` also keeps each group's mean, `CentredClipping` and `Median` make a robust one of these.
Whoever wants something else of them derives from one of the
two and gives that to the server; masks, shares and messages do not change. `Result` is what a round leaves behind: the
sum, who is in it, and what it cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import require
from sparsesecagg.patterns.base import GroupSum
from sparsesecagg.protocol.parameters import Parameters

Normalisation = Literal["observed", "expected"]

SMALLEST_NUMBER = 3
"""Groups that can be compared: with two of them a bad one can't be told."""


_ITERATIONS = 3
"""The last aggregate may be some rounds old where rounds send different slices; the radius shrinks as v settles."""


@dataclass(frozen=True)
class Total:
    """What a round's sums come to, per coordinate."""

    values: NDArray[np.signedinteger[Any]]
    """The sum of the users' integers; zero where nothing was opened."""
    contributors: NDArray[np.unsignedinteger[Any]]
    """How many users are in it."""
    weights: NDArray[np.int64] | None
    """The sum of their private weights; None in a run without weights."""
    clipped: int | None
    """Values clipped by all together; None if the pattern can't count them privately."""
    robust: NDArray[np.float32] | None = None
    """What to take for the mean, if it is not the sum divided by its contributors."""
    groups: tuple[tuple[int, NDArray[np.float32]], ...] = ()
    """Of each opened group, where a combiner keeps them: its users, and its own mean."""

    def sum_of(self, params: Parameters) -> NDArray[np.float64]:
        """Return the sum as real numbers; of weight · update in a run with weights."""
        scale = (params.mechanism or params.quantizer).scale
        real: NDArray[np.float64] = np.divide(self.values, scale, dtype=np.float64)
        return real * max(1, params.max_weight)

    def mean_of(self, params: Parameters) -> NDArray[np.float32]:
        """Return the mean over those who are in it, by weight if there are weights; zero where nobody is."""
        if self.robust is not None:
            return self.robust
        divisor = self.contributors if self.weights is None else self.weights
        mean: NDArray[np.float32] = (self.sum_of(params) / np.maximum(divisor, 1)).astype(np.float32)
        return mean


class Sum:
    """Takes the sums of one round's groups, in any order and from several threads, and adds them up, exactly."""

    def __init__(self, params: Parameters) -> None:
        self.params = params
        # As short as the sum of all groups that may send a coordinate allows: fresh memory costs more than to add.
        largest = params.groups * (params.word.largest + 1)
        self._values: NDArray[Any] = np.zeros(params.dim, np.min_scalar_type(-largest))
        self._contributors: NDArray[Any] = np.zeros(params.dim, np.min_scalar_type(params.clients))
        weighted = params.max_weight > 0 and params.shape.digits.total > 0
        self._weights = np.zeros(params.dim, np.int64) if weighted else None
        self._clipped: int | None = 0
        self._lock = Lock()

    def add(self, opened: GroupSum) -> None:
        """Add a group's values where they belong."""
        with self._lock:
            for index, values, contributors in opened.pieces():
                self._values[index] += values
                self._contributors[index] += np.asarray(contributors).astype(self._contributors.dtype)
                if self._weights is not None and opened.weight is not None:
                    self._weights[index] += opened.weight
            if opened.clipped is None or self._clipped is None:
                self._clipped = None
            else:
                self._clipped += opened.clipped

    def total(self) -> Total:
        """Return the sums."""
        return Total(self._values, self._contributors, self._weights, self._clipped)


Combine = Callable[[Parameters], Sum]
"""What makes the one that a round's groups are given to."""


class ByGroup(Sum):
    """All groups added up, and beside that each group's own mean: for rules that compare groups."""

    def __init__(self, params: Parameters) -> None:
        super().__init__(params)
        require(
            "same_slices",
            params.groups >= SMALLEST_NUMBER and params.slices == 1,
            f"must be set, with {SMALLEST_NUMBER} groups or more: groups are compared, and this run has "
            f"{params.groups} that send {params.slices} different slices",
        )
        self._found: dict[int, tuple[int, NDArray[np.float32]]] = {}

    def add(self, opened: GroupSum) -> None:
        """Add a group's values, and keep its mean."""
        super().add(opened)
        alone = Sum(self.params)
        alone.add(opened)
        # Each group has a key of its own, so threads do not meet here.
        self._found[opened.group] = len(opened.users), alone.total().mean_of(self.params)

    def total(self) -> Total:
        """Return the sums, and the means of the groups."""
        return replace(super().total(), groups=tuple(each for _, each in sorted(self._found.items())))


class CentredClipping:
    """A mean that a few malicious users can't move far, over groups that send the same slice: `Server(…, combine=…)`.

    Masks hide what a single user sends, so one user can set its group's sum to any value of the word. Centred clipping
    (Karimireddy, He, Jaggi, arXiv 2012.10333) begins at 0.9 times the last aggregate and repeats a few times

        v ← v + 1/K · Σ_g w_g·(m_g − v),    w_g = min(1, (τ/‖m_g − v‖)²),    τ = median of ‖m_g − v‖

    With w_g = min(1, τ/‖m_g − v‖), as published, a group far away keeps the influence of one at the radius τ; here it
    loses it. It stands fewer than half bad groups, so about one bad user per two groups.
    """

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
        last = memory.last
        if last is None or len(last) != self.params.dim:  # Another cohort may take another number of coordinates.
            last = np.zeros(self.params.dim, np.float32)
        mean = np.where(where, np.float32(memory.decay) * last, np.float32(0))
        for _ in range(_ITERATIONS):
            away = [np.where(where, each - mean, np.float32(0)) for _, each in total.groups]
            lengths = [float(np.linalg.norm(each)) for each in away]
            radius = float(np.median(lengths)) if lengths else 0.0
            for each, length in zip(away, lengths, strict=True):
                mean += each * np.float32((min(1.0, (radius / length) ** 2) if length else 0.0) / len(away))
        memory.last = np.where(where, mean, last)
        return replace(total, robust=mean)


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
                weight = total_weight or 0
                require("total_weight", weight > 0, "must be positive: the sum of all users' weights, which is public")
                expected *= weight / self.params.clients
            return (self.sum() / expected).astype(np.float32)
        observed, known = normalisation == "observed", not self.params.max_weight or self.combined.weights is not None
        require("normalisation", observed, f"must be 'observed' or 'expected', got {normalisation!r}")
        require("normalisation", known, "must be 'expected' where weights do not travel beside the values")
        return self.combined.mean_of(self.params)

    @staticmethod
    def mean_bytes(sizes: Mapping[str, tuple[int, ...]]) -> dict[str, float]:
        """Return the mean per stage over those who took part in it, and their total."""
        means: dict[str, Any] = {stage: float(np.mean(values)) if values else 0.0 for stage, values in sizes.items()}
        return {**means, "total": sum(means.values())}
