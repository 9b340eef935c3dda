"""The mask graph: (user, slice) nodes, the masks that join them, and its connected components.

Server and colluders learn the sum of every component of honest survivors, and nothing finer: a component's masks
cancel in its sum and in no part of it. So the size of the component that a value sits in is the number of users
it really hides among, and a component of one is a value in the clear.

In `committee` and `full` the masks of a user cover all it sends, so its slices share one component. In `pairwise`
every coordinate has a graph of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.patterns import Slices

Ids = NDArray[np.int64]
Edges = tuple[Ids, Ids]
"""Both ends of each edge, as node numbers."""


@dataclass(frozen=True)
class Nodes:
    """What some users uploaded, as (user, slice) pairs: user by user, in the order of their slices."""

    user: Ids
    slice_number: Ids
    """In `pairwise`, where a slice is one coordinate, the coordinate."""
    coordinates: Ids
    """Values of the model in each node's slice, padding left out."""
    slices_of: Mapping[int, Ids]
    _start: Mapping[int, int]

    @staticmethod
    def of(slices_of: Mapping[int, Ids], slices: Slices) -> Nodes:
        """Number the nodes of the users' uploads."""
        counts = np.array([len(numbers) for numbers in slices_of.values()], np.int64)
        starts = (np.cumsum(counts) - counts).tolist()
        sent = np.concatenate([np.empty(0, np.int64), *slices_of.values()])
        return Nodes(
            user=np.repeat(np.array(list(slices_of), np.int64), counts),
            slice_number=sent,
            coordinates=np.clip(slices.dim - sent * slices.length, 0, slices.length),
            slices_of=slices_of,
            _start=dict(zip(slices_of, starts, strict=True)),
        )

    def __len__(self) -> int:
        return len(self.user)

    def find(self, user: int, numbers: Ids) -> Ids:
        """Return the nodes of some of the user's slices, in `pairwise`, where they are sorted."""
        return self._start[user] + np.searchsorted(self.slices_of[user], numbers)

    def all_of(self, user: int) -> slice:
        """Return where the user's nodes lie."""
        start = self._start[user]
        return slice(start, start + len(self.slices_of[user]))


def open_components(
    hidden: Collection[int], opened: Collection[int], peers_of: Callable[[int], Iterable[int]]
) -> dict[int, int]:
    """Return for each member whose value is in a sum that can be opened how many members hide in that sum.

    `hidden` are the honest members whose mask keys nobody else knows: only masks among them hide anything. `opened` are
    the members whose uploads and private seeds are known. A component is open if all its members are opened; an opened
    member that is not hidden stands alone.
    """
    places = sorted(hidden)
    number = {place: index for index, place in enumerate(places)}
    ends = [
        (number[place], number[peer]) for place in places for peer in peers_of(place) if peer > place and peer in number
    ]
    edges = np.array(ends, np.int64).reshape(-1, 2)
    labels = label_components(len(places), (edges[:, 0], edges[:, 1])).tolist()
    members: dict[int, list[int]] = {}
    for place, label in zip(places, labels, strict=True):
        members.setdefault(label, []).append(place)
    sizes = dict.fromkeys((place for place in opened if place not in number), 1)
    for component in members.values():
        if all(place in opened for place in component):
            sizes |= dict.fromkeys(component, len(component))
    return sizes


def label_components(nodes: int, edges: Edges) -> Ids:
    """Return for each node the smallest node of its connected component."""
    labels = np.arange(nodes)
    while True:
        one, other = labels[edges[0]], labels[edges[1]]
        if np.array_equal(one, other):
            return labels
        smaller = np.minimum(one, other)
        np.minimum.at(labels, one, smaller)
        np.minimum.at(labels, other, smaller)
        # A label always points to a smaller node: following it to the end makes labels roots again.
        while not np.array_equal(labels, labels[labels]):
            labels = labels[labels]


def component_sizes(labels: Ids) -> Ids:
    """Return for each node how many nodes its component has."""
    return np.bincount(labels, minlength=len(labels))[labels]
