"""`committee`: a public random committee sends each block, and masks it inside the committee.

The coordinates are cut into stripes, each stripe into G blocks. Per stripe a fresh random permutation of the members is
cut into G committees, so everybody serves one block per stripe and sends 1/G of the model, always the same number of
bytes. Each block is plain SecAgg among its committee: whoever looks at it learns the sum over the committee's
survivors and nothing less. That is the paper's promise, kept; see docs/privacy.md for the measured difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns.base import Pattern, PatternSettings
from sparsesecagg.patterns.graphs import CircleGraph, Users, permutations
from sparsesecagg.patterns.layout import BlockIds, Layout

DEFAULT_STRIPES = 4
"""More stripes mix users better, and need more pairs of keys; every block is one more chance of a thin committee."""

SMALLEST_COMMITTEE = 3


def groups(settings: PatternSettings) -> int:
    """Return G, the committees per stripe: 1/α to the nearest integer, but no more than leave each three members.

    An α that asks for smaller committees than that gets the G it asks for, and the parameters refuse it.
    """
    nearest = max(1, (2 * (1 << 32) + settings.alpha) // (2 * settings.alpha))
    most = settings.clients // SMALLEST_COMMITTEE
    # α was rounded to a multiple of 2^−32: allow for that in α·N ≥ 3.
    asks_for_enough = (settings.alpha + 1) * settings.clients >= SMALLEST_COMMITTEE << 32
    return min(nearest, most) if asks_for_enough and most else nearest


class Committee(Pattern):
    """Everybody serves one random committee per stripe."""

    name = "committee"
    public = True
    masks_along_shares = False

    def __init__(self, settings: PatternSettings, members: Users, seed: bytes, graph: CircleGraph) -> None:
        super().__init__(settings, members, seed, graph)
        self._groups = groups(settings)
        self._committees: list[Users] = []
        self._group_of: list[NDArray[np.int64]] = []  # per stripe: the group of each user
        self._edges_of: dict[int, dict[int, list[int]]] = {}
        size, larger = divmod(len(members), self._groups)  # The first `larger` committees have one member more.
        sizes = [size + 1] * larger + [size] * (self._groups - larger)
        for order in permutations(seed, "committees", members, self.layout.blocks // self._groups):
            self._committees += [order[start:stop] for start, stop in pairwise(accumulate(sizes, initial=0))]
            group_of = np.full(settings.clients, -1, np.int64)
            group_of[order] = np.repeat(np.arange(self._groups), sizes)
            self._group_of.append(group_of)

    @staticmethod
    def make_layout(settings: PatternSettings) -> Layout:
        """Cut into stripes of G blocks; fewer stripes where the model is too small for them."""
        count = groups(settings)
        stripes = max(1, min(settings.stripes, settings.dim // count))
        return Layout.cut(settings.dim, stripes * count)

    @staticmethod
    def contributors(settings: PatternSettings) -> int:
        """Return the size of the largest committee."""
        return -(-settings.clients // groups(settings))

    @staticmethod
    def selection_probability(settings: PatternSettings) -> float:
        """Return 1/G, the effective α."""
        return 1.0 / groups(settings)

    def committee(self, block: int) -> Users:
        """Return the members that send a block."""
        return self._committees[block]

    def peers(self, user: int) -> list[int]:
        """Return those who share at least one committee edge with `user`."""
        return sorted(self._edges(user))

    def shared(self, user: int, peers: Sequence[int], seeds: Sequence[PatternSeed]) -> list[BlockIds]:
        """Return the blocks in which both serve, side by side."""
        edges = self._edges(user)
        return [np.array(edges[peer], np.int64) for peer in peers]

    def selected(self, user: int, shared: Sequence[BlockIds]) -> BlockIds:
        """Return the user's one block of each stripe."""
        return np.array([stripe * self._groups + int(of[user]) for stripe, of in enumerate(self._group_of)], np.int64)

    def _edges(self, user: int) -> dict[int, list[int]]:
        """Return the blocks that each peer masks with `user`, in order; found once for `peers` and `shared`."""
        if user not in self._edges_of:
            edges: dict[int, list[int]] = defaultdict(list)
            for block in np.asarray(self.selected(user, [])).tolist():
                for peer in CircleGraph(self._committees[block], self.settings.degree).neighbours(user).tolist():
                    edges[peer].append(block)
            self._edges_of[user] = edges
        return self._edges_of[user]

    def survivors_per_block(self, survivors: Users) -> NDArray[np.int64]:
        """Return how many of each committee survived."""
        return np.concatenate([np.bincount(of[survivors], minlength=self._groups) for of in self._group_of])
