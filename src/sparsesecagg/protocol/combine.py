"""From the opened sums of groups to the result of a round: the one place that knows more than one group.

`Sum` adds them up, `ByGroup` also keeps each group's mean. Whoever wants something else of them writes another
`Combiner` and gives it to the server; masks, shares and messages do not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.base import GroupSum
from sparsesecagg.protocol.parameters import Parameters

SMALLEST_NUMBER = 3
"""Groups that can be compared: with two of them a bad one can't be told."""


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
        values: NDArray[Any] = self.values
        for step in reversed(params.steps(1, bytes)):  # Undone, so that nothing is drawn.
            values = step.undo(values)
        return values * max(1, params.max_weight)

    def mean_of(self, params: Parameters) -> NDArray[np.float32]:
        """Return the mean over those who are in it, by weight if there are weights; zero where nobody is."""
        if self.robust is not None:
            return self.robust
        divisor = self.contributors if self.weights is None else self.weights
        mean: NDArray[np.float32] = (self.sum_of(params) / np.maximum(divisor, 1)).astype(np.float32)
        return mean


class Combiner(ABC):
    """Takes the sums of one round's groups, in any order and from several threads, and says what they come to."""

    def __init__(self, params: Parameters) -> None:
        self.params = params

    @abstractmethod
    def add(self, opened: GroupSum) -> None:
        """Take the opened sum of one group."""

    @abstractmethod
    def total(self) -> Total:
        """Return what the groups come to."""


class Sum(Combiner):
    """All groups added up, exactly."""

    def __init__(self, params: Parameters) -> None:
        super().__init__(params)
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


class ByGroup(Sum):
    """All groups added up, and beside that each group's own mean: for rules that compare groups."""

    def __init__(self, params: Parameters) -> None:
        super().__init__(params)
        if params.groups < SMALLEST_NUMBER or params.slices != 1:
            raise InvalidInput(
                "same_slices",
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
