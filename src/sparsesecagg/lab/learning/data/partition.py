"""Deal the training samples out to users: every sample to one user, every user at least one sample.

The names are those that Flower users know. Each way of dealing is a function (labels, clients, generator, …) → one
array of sample indices per user.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.data.dataset import Dataset
from sparsesecagg.lab.learning.seeds import Purpose, generator

Labels = NDArray[np.int64]
Indices = list[NDArray[np.int64]]

PARTITIONS = ("iid", "shards", "dirichlet")
DEFAULT_SHARDS = 300  # as in the paper
DEFAULT_CONCENTRATION = 0.5


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

    @classmethod
    def load(cls, folder: Path) -> Partition:
        """Read what `save` wrote."""
        described = json.loads((folder / "partition.json").read_text())
        with np.load(folder / "partition.npz") as stored:
            own = np.split(stored["samples"], np.cumsum(stored["sizes"])[:-1])
        return cls(tuple(own), tuple(described["classes"]), np.array(described["counts"], dtype=np.int64))


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
    if name not in PARTITIONS:
        raise InvalidInput("partition", f"must be one of {', '.join(PARTITIONS)}, got {name!r}")
    if not 1 <= clients <= samples:
        raise InvalidInput(
            "clients", f"must be 1 to {samples}, the number of training samples, so that each has one, got {clients}"
        )
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
    if not clients <= shards <= len(labels):
        raise InvalidInput(
            "shards",
            f"must be {clients} (one per user) to {len(labels)} (one sample each), the number of training samples; "
            f"got {shards}",
        )
    shuffled = random.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(by_label, shards)
    dealt = np.array_split(random.permutation(shards), clients)
    return [np.concatenate([pieces[shard] for shard in own]) for own in dealt]


def dirichlet(labels: Labels, clients: int, random: np.random.Generator, concentration: float) -> Indices:
    """Deal each class in proportions drawn from a Dirichlet distribution; small concentrations are very uneven.

    A user left without any sample takes one from the user with the most, so that nobody is idle.
    """
    if not (np.isfinite(concentration) and concentration > 0):
        raise InvalidInput(
            "concentration", f"must be above 0 (0.1 is very uneven, 100 nearly even), got {concentration}"
        )
    own: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        shares = random.dirichlet(np.full(clients, concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for user, part in enumerate(np.split(members, cuts)):
            own[user].append(part)
    indices = [np.concatenate(parts) for parts in own]
    for user in range(clients):
        if not len(indices[user]):
            richest = max(range(clients), key=lambda other: len(indices[other]))
            indices[user], indices[richest] = indices[richest][:1], indices[richest][1:]
    return indices
