"""Where the arrays of a model, and what travels beside them, stand in the vector of a run.

    sliced arrays, end to end │ zeros up to a whole block │ values that every round sends, a block or more each

Matrices are sliced: a round sends α of their coordinates. Vectors and scalars (biases, the statistics of normalisation
layers) are few and matter much, and statistics that are some rounds old spoil a model, so they are sent whole in every
round, as metrics are: a pattern sends a part of every block of L neighbours, so a block that holds one value L times
sends it. Such a value is written as a number of several digits, since its array may span many orders of magnitude and
short words do not: the first digit is what any value is, the next is what rounding it left over, and so on.

In a round that finds ranges, every block holds one cell of a user's votes instead (`ranges.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import ceil, isqrt, log2
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from sparsesecagg.errors import MalformedMessage, require
from sparsesecagg.flower.arrays import Slot, Template, view
from sparsesecagg.protocol import Parameters
from sparsesecagg.ranges import CELLS, vote

_STATISTICS = ("running_", "moving_")
"""What frameworks call the statistics of normalisation layers: variances of raw features span ten decimal places."""
_FINE, _USUAL, _METRIC = 36, 12, 16
"""Bits below the range, of statistics, of other whole arrays and of metrics."""
_SMALL = 4096
"""Words that whole arrays may always take, and beyond them a quarter of what slices take."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Packing:
    """How a model and some metrics are laid out in a run. Server and nodes derive it from the same model."""

    template: Template
    params: Parameters
    metrics: int = 0
    """How many metrics stand behind the model."""
    sliced: tuple[Slot, ...] = field(init=False)
    whole: tuple[tuple[Slot, int], ...] = field(init=False)
    """Arrays that every round sends, with the digits of a value."""

    def __post_init__(self) -> None:
        slots, chosen, words = self.template.travelling, set[str](), 0
        small = [slot for slot in slots if len(slot.shape) <= 1]
        budget = max(_SMALL, int(self.params.shape.fraction() * self.template.dim / 4))
        if len(small) < len(slots) and self._repeats and not self.params.mechanism:
            for slot in sorted(small, key=lambda slot: (not _is_statistic(slot), slot.size)):
                words += slot.size * self.digits(_bits(slot))
                if words <= budget:
                    chosen.add(slot.name)
        whole = tuple((slot, self.digits(_bits(slot))) for slot in slots if slot.name in chosen)
        object.__setattr__(self, "sliced", tuple(slot for slot in slots if slot.name not in chosen))
        object.__setattr__(self, "whole", whole)

    # Sizes

    @property
    def _repeats(self) -> bool:
        """Whether every block sends a part of itself; the published pattern draws coordinates one by one."""
        return self.params.shape.protects

    @property
    def block(self) -> int:
        """Neighbours of which a round sends a part, L."""
        return (self.params.shape.copies + 1) // 2

    @property
    def base(self) -> int:
        """The digits' base: what rounding to a step leaves over must fit the words of the lightest user."""
        return self.params.quantizer.limit // max(1, self.params.max_weight)

    def digits(self, bits: int) -> int:
        """Return how many digits reach so many bits below the range."""
        missing = bits - log2(self.params.quantizer.limit)
        return 1 + ceil(missing / log2(self.base)) if missing > 0 and self.base >= 4 and self._repeats else 1

    @cached_property
    def sizes(self) -> list[int]:
        """The number of parameters in each sliced array."""
        return [slot.size for slot in self.sliced]

    @cached_property
    def places(self) -> list[tuple[Slot, slice]]:
        """Where each array lies in an `Opened` mean."""
        order = [*self.sliced, *(slot for slot, _ in self.whole)]
        ends = accumulate(slot.size for slot in order)
        return [(slot, slice(end - slot.size, end)) for slot, end in zip(order, ends, strict=True)]

    @property
    def start(self) -> int:
        """Where the blocks of single values begin."""
        return -(-sum(self.sizes) // self.block) * self.block

    @property
    def dim(self) -> int:
        """The coordinates that are needed."""
        values = sum(slot.size * digits for slot, digits in self.whole) + self.metrics * self.digits(_METRIC)
        return self.start + self.block * values if values else sum(self.sizes)

    @property
    def dim_with_votes(self) -> int:
        """The coordinates of a run that has a cell for each vote too."""
        return max(self.dim, self.block * CELLS * len(self.template.travelling))

    def check(self) -> None:
        """Raise unless the run has room for the model and the metrics."""
        if self.params.dim < self.dim:
            raise MalformedMessage("the model and the metrics of the message do not fit the run's parameters")

    # What a node sends

    def update(
        self,
        received: ArrayRecord,
        trained: ArrayRecord,
        scales: Sequence[float],
        metrics: Sequence[float] = (),
        weight: int = 1,
    ) -> ModelUpdate:
        """Return an update in units of the scales, one for each array, with metrics in units of theirs."""
        part = weight / self.params.max_weight if self.params.max_weight else 1.0
        scale_of = {slot.name: scale for slot, scale in zip(self.template.travelling, scales, strict=True)}
        tail: list[Floats] = []
        for slot, digits in self.whole:
            difference = np.subtract(view(trained[slot.name]), view(received[slot.name]), dtype=np.float64)
            tail += self._digits(difference.reshape(-1) / scale_of[slot.name], digits, part)
        tail += self._digits(np.asarray(metrics, np.float64), self.digits(_METRIC), part)
        pieces = [(view(trained[s.name]), view(received[s.name]), scale_of[s.name]) for s in self.sliced]
        return ModelUpdate(self, pieces, np.concatenate(tail))

    def _digits(self, values: Floats, digits: int, part: float) -> list[Floats]:
        """Return the digits of values in [−1, 1], the last one not rounded, for a user of a part of the weight."""
        limit = self.params.quantizer.limit
        rest, written = values * (limit * part), []
        for _ in range(digits - 1):
            written.append(np.trunc(rest))
            rest = (rest - written[-1]) * self.base
        return [each / (limit * part) for each in (*written, rest)]

    def rows(self, changes: ArrayRecord) -> ExampleRows:
        """Return what each example changes, one row each; raise unless the app has replied with just that.

        So many rows are allowed that the sum of all nodes can't wrap, even if all examples pull at one parameter.
        """
        first = view(changes[self.sliced[0].name]) if self.sliced[0].name in changes else np.zeros(())
        count = first.shape[0] if first.ndim else 0
        self.template.require_same(changes, count)
        params, norm = self.params, isqrt(self.params.mechanism.squared_norm) + 1 if self.params.mechanism else 1
        most = params.word.largest // (2 * params.contributors * norm)
        require("arrays", count <= most, f"of the reply must have at most {most} rows, which words hold, got {count}")
        matrix = np.zeros((count, params.dim), self.template.dtype)
        for slot, place in self.places:
            matrix[:, place] = view(changes[slot.name]).reshape(count, slot.size)
        return ExampleRows(matrix)

    def votes(self, received: ArrayRecord, trained: ArrayRecord) -> Votes:
        """Return a node's votes for the range of each array."""
        largest = []
        for slot in self.template.travelling:
            difference = np.subtract(view(trained[slot.name]), view(received[slot.name]), dtype=self.template.dtype)
            largest.append(float(np.max(np.abs(difference), initial=0, where=np.isfinite(difference))))
        return Votes(self.params.dim, self.block, vote(largest))

    # What the server opens

    def shares(self, mean: Floats, updated: NDArray[np.bool_]) -> Floats:
        """Return the part of the users that voted for each cell."""
        cells = CELLS * len(self.template.travelling)
        cell = np.arange(len(mean)) // self.block % cells
        known = np.bincount(cell[updated], minlength=cells)
        return np.bincount(cell[updated], mean[updated], cells) / np.maximum(known, 1)

    def open(
        self, mean: Floats, updated: NDArray[np.bool_], scales: Sequence[float], counts: NDArray[Any] | None = None
    ) -> Opened:
        """Read a mean of updates, with what of it was opened.

        `counts` has how many users, or how much of their weight, each coordinate is the mean of: the copies of one
        value may come from several groups.
        """
        count, weights = sum(self.sizes), np.where(updated, 1 if counts is None else counts, 0)
        weights = weights[self.start : self.dim].reshape(-1, self.block)
        copies = np.where(weights > 0, mean[self.start : self.dim].reshape(-1, self.block), 0)
        tail, start = (copies * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1), 0
        parts = [mean[:count]]
        for slot, digits in self.whole:
            end = start + slot.size * digits
            parts.append(self._number(tail[start:end], digits))
            start = end
        metrics = self._number(tail[start:], self.digits(_METRIC)) if self.metrics else tail[:0]
        values, covered = np.concatenate(parts), np.full(self.template.dim, updated.any())
        covered[:count] = updated[:count]
        scale_of = {slot.name: scale for slot, scale in zip(self.template.travelling, scales, strict=True)}
        for slot, place in self.places:
            values[place] *= scale_of[slot.name]
        return Opened(self, values, covered, metrics)

    def _number(self, tail: Floats, digits: int) -> Floats:
        places = np.asarray(float(self.base)) ** -np.arange(digits)
        number: Floats = np.einsum("i,ij->j", places, tail.reshape(digits, -1))
        return number


@dataclass(frozen=True)
class Opened:
    """The mean of a round: sliced arrays end to end, then those that every round sends."""

    packing: Packing
    values: Floats
    """Of no meaning where nothing is `covered`."""
    covered: NDArray[np.bool_]
    metrics: Floats
    """Their means, in units of their bounds."""

    @staticmethod
    def median(means: Sequence[Opened]) -> Opened:
        """Return the median of the means of groups that sent the same slices."""
        if len(means) == 1:
            return means[0]
        values, metrics = (np.median([getattr(each, name) for each in means], axis=0) for name in ("values", "metrics"))
        return replace(means[0], values=values, metrics=metrics)

    @property
    def sliced(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The sliced arrays, and what of them is covered."""
        count = sum(self.packing.sizes)
        return self.values[:count].astype(np.float32), self.covered[:count]

    def largest(self) -> tuple[list[float], list[bool]]:
        """Return the largest magnitude in each array that travels, and whether anything of it was opened."""
        places = {slot.name: place for slot, place in self.packing.places}
        parts = [places[slot.name] for slot in self.packing.template.travelling]
        sizes = [float(np.max(np.abs(self.values[part]), initial=0, where=self.covered[part])) for part in parts]
        return sizes, [bool(self.covered[part].any()) for part in parts]

    def update(self, gain: float) -> Floats:
        """Return the whole update in the model's order; sliced arrays move by gain times the mean."""
        template, (sliced, covered) = self.packing.template, self.sliced
        moved = np.where(covered, np.float32(gain) * sliced, np.float32(0))
        update = np.empty(template.dim, np.result_type(template.dtype, np.float32))
        for slot, place in self.packing.places:
            part = moved[place] if place.start < len(moved) else self.values[place]
            update[slot.start : slot.start + slot.size] = part
        return update


class _Source(ABC):
    """What the protocol reads an upload from, coordinate by coordinate."""

    dim: int

    @abstractmethod
    def take(self, coordinates: NDArray[np.int64]) -> Floats:
        """Return single values; coordinates must not fall."""

    def read(self, start: int, stop: int) -> Floats:
        """Return a stretch."""
        return self.take(np.arange(start, stop))


class ModelUpdate(_Source):
    """An update as the protocol reads it: (trained − received) / scale, then the values of every round.

    A node sends a fraction of the model, so the difference is computed where it is read. Holding all of it would cost a
    third model beside the received and the trained one.
    """

    def __init__(self, packing: Packing, pieces: Sequence[tuple[Floats, Floats, float]], tail: Floats) -> None:
        self.dim = packing.params.dim
        self._dtype = packing.template.dtype
        self._pieces = [
            (trained.reshape(-1), received.reshape(-1), self._dtype.type(1 / scale))
            for trained, received, scale in pieces
        ]
        self._starts = np.cumsum([0, *packing.sizes])
        self._tail_start, self._block, self._tail = packing.start, packing.block, tail

    def take(self, coordinates: NDArray[np.int64]) -> Floats:
        """Return single values; coordinates must not fall."""
        split = int(np.searchsorted(coordinates, self._starts[-1]))
        values = np.empty(split, self._dtype)
        bounds = np.searchsorted(coordinates[:split], self._starts)
        for index, (trained, received, factor) in enumerate(self._pieces):
            here = slice(bounds[index], bounds[index + 1])
            inside = coordinates[here] - self._starts[index]
            values[here] = (trained[inside].astype(self._dtype) - received[inside].astype(self._dtype)) * factor
        return values if split == len(coordinates) else np.concatenate([values, self._behind(coordinates[split:])])

    def _behind(self, coordinates: NDArray[np.int64]) -> Floats:
        """Return what stands behind the sliced arrays; zeros where nothing does."""
        place = (coordinates - self._tail_start) // self._block
        inside = (place >= 0) & (place < len(self._tail))
        values = np.zeros(len(coordinates), np.float64)
        values[inside] = self._tail[place[inside]]
        return values


class ExampleRows(_Source):
    """What each example changes, as the protocol reads it. The mechanism clips and rounds rows, and adds them up."""

    def __init__(self, matrix: Floats) -> None:
        self._matrix = matrix
        self.dim = matrix.shape[1]

    def take(self, coordinates: NDArray[np.int64]) -> Floats:
        """Return single values of all rows."""
        return self._matrix[:, coordinates]


class Votes(_Source):
    """Votes as the protocol reads them: one cell in each block, over and over."""

    def __init__(self, dim: int, block: int, cells: NDArray[np.float32]) -> None:
        self.dim, self._block, self._cells = dim, block, cells

    def take(self, coordinates: NDArray[np.int64]) -> Floats:
        """Return single values."""
        return self._cells[coordinates // self._block % len(self._cells)]


def _is_statistic(slot: Slot) -> bool:
    return any(name in slot.name for name in _STATISTICS)


def _bits(slot: Slot) -> int:
    return _FINE if _is_statistic(slot) else _USUAL
