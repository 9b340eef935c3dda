"""Samples with labels, in a training and a test part, and how the training samples are dealt out to users.

The names of the partitions are those that Flower users know: every sample goes to one user, and every user has one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.lab.learning.seeds import Purpose, generator

Labels = NDArray[np.int64]
Indices = list[NDArray[np.int64]]
PARTITIONS = ("iid", "shards", "dirichlet")
DEFAULT_SHARDS = 300  # as in the paper
DEFAULT_CONCENTRATION = 0.5


@dataclass(frozen=True, eq=False)
class Dataset:
    """A classification task. Build one from your own arrays with `Dataset.from_arrays`."""

    name: str
    train_x: NDArray[np.float32]  # (samples, ...)
    train_y: NDArray[np.int64]  # (samples,), 0 … classes − 1
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...] = ()
    """Their names; by default the numbers from 0 to the highest label."""

    def __post_init__(self) -> None:
        """Check everything, and turn it into the types above."""
        known = isinstance(self.name, str) and Path(self.name).name == self.name not in ("", "..")
        require("name", known, f"must be a name without slashes, for run folders, got {self.name!r}")
        for part in ("train", "test"):
            x, y = _samples(part, getattr(self, f"{part}_x"), getattr(self, f"{part}_y"))
            object.__setattr__(self, f"{part}_x", x)
            object.__setattr__(self, f"{part}_y", y)
        if self.test_x.shape[1:] != self.sample_shape:
            got = f"{self.test_x.shape[1:]}, train_x of {self.sample_shape}"
            raise InvalidInput("test_x", f"has samples of shape {got}")
        highest = int(max(self.train_y.max(), self.test_y.max()))
        names = tuple(self.classes) or tuple(str(label) for label in range(highest + 1))
        require("classes", highest < len(names), f"has {len(names)} names, but a label is {highest}")
        object.__setattr__(self, "classes", names)

    @classmethod
    def from_arrays(
        cls,
        train_x: ArrayLike,
        train_y: ArrayLike,
        test_x: ArrayLike | None = None,
        test_y: ArrayLike | None = None,
        *,
        classes: Sequence[str] | None = None,
        name: str = "own data",
        test_fraction: float = 0.2,
        seed: int = 0,
    ) -> Dataset:
        """Make a data set of arrays.

        Samples are (samples, ...) numbers, labels whole numbers from 0. Without a test part, `test_fraction` of the
        samples becomes one, drawn with `seed`.
        """
        require("test_x", (test_x is None) == (test_y is None), "must be given together with test_y")
        parts: tuple[Any, Any, Any, Any] = train_x, train_y, test_x, test_y
        if test_x is None:
            parts = _split(*_samples("train", train_x, train_y), test_fraction, seed)
        return cls(name, *parts, classes=() if classes is None else tuple(classes))

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.train_x.shape[1:]

    @cached_property
    def digest(self) -> str:
        """A hash of all samples and labels: a resumed run must see the data that the run began with."""
        state = hashlib.sha256()
        for part in (self.train_x, self.train_y, self.test_x, self.test_y):
            state.update(repr((part.shape, part.dtype.str)).encode())
            state.update(np.ascontiguousarray(part).data)
        return state.hexdigest()

    def with_samples(self, samples: int, seed: int) -> Dataset:
        """Return the task with only `samples` training samples, drawn with `seed`."""
        if not 1 <= samples <= len(self.train_y):
            raise InvalidInput("samples", f"must be 1 to {len(self.train_y)}, all there are, got {samples}")
        kept = np.sort(generator(seed, Purpose.SPLIT, 1).permutation(len(self.train_y))[:samples])
        return replace(self, train_x=self.train_x[kept], train_y=self.train_y[kept])


def _samples(part: str, x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        samples = np.ascontiguousarray(x, dtype=np.float32)
    except (TypeError, ValueError) as problem:
        raise InvalidInput(f"{part}_x", f"must be an array of numbers: {problem}") from None
    labels = np.asarray(y)
    if labels.ndim != 1 or (labels.dtype.kind not in "iu" and len(labels)):
        got = f"{labels.ndim} dimensions of {labels.dtype}"
        raise InvalidInput(f"{part}_y", f"must be a one-dimensional array of whole numbers, got {got}")
    if samples.ndim < 2 or len(samples) != len(labels) or not len(labels):
        wanted = f"one row for each of the {len(labels)} labels, and at least one"
        raise InvalidInput(f"{part}_x", f"must hold {wanted}, got shape {samples.shape}")
    require(f"{part}_y", bool(labels.min() >= 0), f"must count the classes from 0, got {labels.min()}")
    require(f"{part}_x", bool(np.isfinite(samples).all()), "must be finite numbers, got NaN or infinity")
    return samples, labels.astype(np.int64, copy=False)


def _split(
    x: NDArray[np.float32], y: NDArray[np.int64], fraction: float, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    held_out = round(len(y) * fraction)
    if not 0 < held_out < len(y):
        raise InvalidInput("test_fraction", f"must leave one of {len(y)} samples on either side, got {fraction}")
    order = generator(seed, Purpose.SPLIT).permutation(len(y))
    test, train = order[:held_out], order[held_out:]
    return x[train], y[train], x[test], y[test]


@dataclass(frozen=True, eq=False)
class Partition:
    """Which samples each user holds, and how many of each class."""

    indices: tuple[NDArray[np.int64], ...]
    classes: tuple[str, ...]
    counts: NDArray[np.int64]  # (users, classes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of samples of each user."""
        return np.array([len(own) for own in self.indices], dtype=np.int64)

    def save(self, folder: Path) -> None:
        """Write partition.json (counts, to look at) and partition.npz (sample indices)."""
        described = {"classes": list(self.classes), "counts": self.counts.tolist()}
        (folder / "partition.json").write_text(json.dumps(described) + "\n")
        np.savez_compressed(folder / "partition.npz", samples=np.concatenate(self.indices), sizes=self.sizes)


def make_partition(
    dataset: Dataset,
    name: str,
    clients: int,
    seed: int,
    *,
    shards: int = DEFAULT_SHARDS,
    concentration: float = DEFAULT_CONCENTRATION,
) -> Partition:
    """Deal `dataset` out to `clients` users in the way called `name`, deterministic for a seed."""
    labels, samples = dataset.train_y, len(dataset.train_y)
    require("partition", name in PARTITIONS, f"must be one of {', '.join(PARTITIONS)}, got {name!r}")
    most = f"{samples}, the number of training samples, so that each has one"
    require("clients", 1 <= clients <= samples, f"must be at most {most}, got {clients}")
    random = generator(seed, Purpose.PARTITION)
    if name == "iid":
        indices = iid(labels, clients, random)
    elif name == "shards":
        indices = by_shards(labels, clients, random, shards)
    else:
        indices = dirichlet(labels, clients, random, concentration)
    counts = np.stack([np.bincount(labels[own], minlength=len(dataset.classes)) for own in indices])
    return Partition(tuple(np.sort(own) for own in indices), dataset.classes, counts)


def iid(labels: Labels, clients: int, random: np.random.Generator) -> Indices:
    """Shuffle and cut into parts whose sizes differ by one at most."""
    return np.array_split(random.permutation(len(labels)), clients)


def by_shards(labels: Labels, clients: int, random: np.random.Generator, shards: int) -> Indices:
    """Sort by label, cut into shards, deal whole shards at random (McMahan et al.; 300 shards in the paper)."""
    wanted = f"{clients} (one per user) to {len(labels)} (one sample each), the number of training samples"
    require("shards", clients <= shards <= len(labels), f"must be {wanted}; got {shards}")
    shuffled = random.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(by_label, shards)
    dealt = np.array_split(random.permutation(shards), clients)
    return [np.concatenate([pieces[shard] for shard in own]) for own in dealt]


def dirichlet(labels: Labels, clients: int, random: np.random.Generator, concentration: float) -> Indices:
    """Deal each class in proportions drawn from a Dirichlet distribution; small concentrations are very uneven."""
    wanted = "must be above 0 (0.1 is very uneven, 100 nearly even)"
    require("concentration", 0 < concentration < np.inf, f"{wanted}, got {concentration}")
    own: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        shares = random.dirichlet(np.full(clients, concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for user, part in enumerate(np.split(members, cuts)):
            own[user].append(part)
    indices = [np.concatenate(parts) for parts in own]
    for user in range(clients):
        if not len(indices[user]):  # It takes a sample from the user with the most, so that nobody is idle.
            richest = max(range(clients), key=lambda other: len(indices[other]))
            indices[user], indices[richest] = indices[richest][:1], indices[richest][1:]
    return indices
