"""The mask graph: (user, block) nodes, the masks that join them, and its connected components.

Server and colluders learn the sum of every component of honest survivors, and nothing finer: a component's masks
cancel in its sum and in no part of it. So the size of the component that a value sits in is the number of users
it really hides among, and a component of one is a value in the clear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns import BlockIds, Layout, Pattern

Ids = NDArray[np.int64]
Edges = tuple[Ids, Ids]
"""Both ends of each edge, as node numbers."""

SeedsOf = Callable[[int, Sequence[int]], list[PatternSeed]]
"""Gives a user's pattern seeds with some of its peers."""


@dataclass(frozen=True)
class Nodes:
    """What some users uploaded, as (user, block) pairs: user by user, blocks in order."""

    user: Ids
    block: Ids
    coordinates: Ids
    """Values of the model in each node's block, padding left out."""
    blocks_of: Mapping[int, Ids]
    _start: Mapping[int, int]

    @staticmethod
    def of(blocks_of: Mapping[int, BlockIds], layout: Layout) -> Nodes:
        """Number the nodes of the users' uploads."""
        sent = {
            user: np.arange(layout.blocks) if isinstance(blocks, slice) else blocks
            for user, blocks in blocks_of.items()
        }
        counts = np.array([len(blocks) for blocks in sent.values()], np.int64)
        starts = (np.cumsum(counts) - counts).tolist()
        block = np.concatenate([np.empty(0, np.int64), *sent.values()])
        return Nodes(
            user=np.repeat(np.array(list(sent), np.int64), counts),
            block=block,
            coordinates=np.clip(layout.dim - block * layout.length, 0, layout.length),
            blocks_of=sent,
            _start=dict(zip(sent, starts, strict=True)),
        )

    def __len__(self) -> int:
        return len(self.user)

    def rows(self, user: int, blocks: BlockIds) -> Ids:
        """Return the places of the blocks, all of which the user sent, among its own."""
        sent = self.blocks_of[user]
        return np.arange(len(sent)) if isinstance(blocks, slice) else np.searchsorted(sent, blocks)

    def find(self, user: int, blocks: BlockIds) -> Ids:
        """Return the nodes of the user's blocks."""
        return self._start[user] + self.rows(user, blocks)

    def all_of(self, user: int) -> slice:
        """Return where the user's nodes lie."""
        start = self._start[user]
        return slice(start, start + len(self.blocks_of[user]))


def mask_edges(pattern: Pattern, nodes: Nodes, users: Sequence[int], seeds_of: SeedsOf | None = None) -> Edges:
    """Return an edge for every mask that two of the `users` share on a block; a public pattern needs no seeds."""
    among = set(users)
    ends: list[Edges] = []
    for user in users:
        peers = [peer for peer in pattern.peers(user) if peer > user and peer in among]
        shared = pattern.shared(user, peers, seeds_of(user, peers) if seeds_of else [])
        for peer, blocks in zip(peers, shared, strict=True):
            ends.append((nodes.find(user, blocks), nodes.find(peer, blocks)))
    none = np.empty(0, np.int64)
    return (
        np.concatenate([none, *(one for one, _ in ends)]),
        np.concatenate([none, *(other for _, other in ends)]),
    )


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
