"""`committee`: a public random committee sends each block, and masks it inside the committee.

The share of the model that a user sends is a fraction a/b. The coordinates are cut into stripes, each stripe into b
blocks. Per stripe a fresh random permutation of the members is cut into b arcs, and the committee of block k are the a
arcs from the k-th on, round the circle. So everybody serves a blocks per stripe and sends a/b of the model, always the
same number of bytes, and a committee is a random set of a·N/b members. Each block is plain SecAgg among its committee:
whoever looks at it learns the sum over the committee's survivors and nothing less. That is the paper's promise, kept;
see docs/privacy.md for the measured difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns.base import Pattern, PatternSettings
from sparsesecagg.patterns.graphs import CircleGraph, Users, permutations
from sparsesecagg.patterns.layout import BlockIds, Layout

DEFAULT_STRIPES = 4
"""More stripes mix users better, and need more pairs of keys; every block is one more chance of a thin committee."""

SMALLEST_COMMITTEE = 3

LARGEST_DENOMINATOR = 16
"""Of fractions with a > 1. Some fraction is near enough to any α, and a stripe has few blocks."""


def served_fraction(settings: PatternSettings) -> Fraction:
    """Return a/b: of the b blocks of each stripe everybody serves a.

    The fraction nearest to α with b ≤ 16, or 1/G for the integer G nearest to 1/α, whichever is nearer; of equally near
    ones that with the smaller b. Committees keep three members: an α that asks for as many gets no fraction that gives
    fewer. An α that asks for smaller committees gets them, and the parameters refuse it.

    Disjoint committees are 1/G for the largest G that does not make them smaller than α asks for.
    """
    return _nearest_fraction(settings.alpha, settings.clients, settings.disjoint)


@lru_cache(maxsize=256)
def _nearest_fraction(alpha: int, clients: int, disjoint: bool) -> Fraction:
    # Nearest to 1/α, or not above it. α was rounded to a multiple of 2^−32: 1/10 must not become 1/9.
    whole = (1 << 33) // (2 * alpha - 1) if disjoint else (2 * (1 << 32) + alpha) // (2 * alpha)
    most = clients // SMALLEST_COMMITTEE
    # α was rounded to a multiple of 2^−32: allow for that in α·N ≥ 3.
    asks_for_enough = (alpha + 1) * clients >= SMALLEST_COMMITTEE << 32 and most > 0
    candidates = {Fraction(1, min(whole, most) if asks_for_enough else whole)}
    for blocks in range(1, 1 if disjoint else LARGEST_DENOMINATOR + 1):
        below = (alpha * blocks) >> 32
        candidates |= {Fraction(served, blocks) for served in (below, below + 1) if 1 <= served <= blocks}
    if asks_for_enough:
        candidates = {share for share in candidates if share * clients >= SMALLEST_COMMITTEE}
    wanted = Fraction(alpha, 1 << 32)
    return min(candidates, key=lambda share: (abs(share - wanted), share.denominator))


def smallest_committee(settings: PatternSettings) -> int:
    """Return ⌊a·N/b⌋, the members of the smallest committee if nobody leaves before committees are drawn."""
    return int(served_fraction(settings) * settings.clients)


def arc_sizes(members: int, share: Fraction) -> list[int]:
    """Return the sizes of the b arcs: they differ by one at most, and so do the sizes of the committees.

    The larger arcs are 0, a, 2a, … (mod b). From block k to the next, arc k leaves and arc k + a joins; with the larger
    arcs a apart that changes the size up once and down once around the circle.
    """
    size, larger = divmod(members, share.denominator)
    sizes = [size] * share.denominator
    for step in range(larger):
        sizes[step * share.numerator % share.denominator] += 1
    return sizes


class Committee(Pattern):
    """Everybody serves in the same number of random committees per stripe."""

    name = "committee"
    public = True
    masks_along_shares = False

    def __init__(self, settings: PatternSettings, members: Users, seed: bytes, graph: CircleGraph) -> None:
        super().__init__(settings, members, seed, graph)
        share = served_fraction(settings)
        self._served, self._blocks = share.numerator, share.denominator  # a and b
        self._committees: list[Users] = []
        self._arc_of: list[NDArray[np.int64]] = []  # per stripe: the arc of each user
        self._edges_of: dict[int, dict[int, list[int]]] = {}
        sizes = arc_sizes(len(members), share)
        starts = list(accumulate(sizes * 2, initial=0))  # Twice round the circle, for committees across its seam.
        for order in permutations(seed, "committees", members, self.layout.blocks // self._blocks):
            twice = np.concatenate([order, order])
            self._committees += [twice[starts[k] : starts[k + self._served]] for k in range(self._blocks)]
            arc_of = np.full(settings.clients, -1, np.int64)
            arc_of[order] = np.repeat(np.arange(self._blocks), sizes)
            self._arc_of.append(arc_of)

    @staticmethod
    def make_layout(settings: PatternSettings) -> Layout:
        """Cut into stripes of b blocks; fewer stripes where the model is too small for them."""
        count = served_fraction(settings).denominator
        stripes = 1 if settings.disjoint else max(1, min(settings.stripes, settings.dim // count))
        return Layout.cut(settings.dim, stripes * count)

    @staticmethod
    def contributors(settings: PatternSettings) -> int:
        """Return the size of the largest committee, ⌈a·N/b⌉."""
        return -(-settings.clients * served_fraction(settings) // 1)

    @staticmethod
    def selection_probability(settings: PatternSettings) -> float:
        """Return a/b, the effective α."""
        return float(served_fraction(settings))

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
        """Return the user's blocks of each stripe: those whose committees reach its arc."""
        first = np.array([arc_of[user] for arc_of in self._arc_of], np.int64) - self._served + 1
        blocks = np.sort((first[:, None] + np.arange(self._served)) % self._blocks, axis=1)
        selected: BlockIds = (blocks + self._blocks * np.arange(len(first))[:, None]).reshape(-1)
        return selected

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
        arcs = np.array([np.bincount(arc_of[survivors], minlength=self._blocks) for arc_of in self._arc_of])
        counts = np.zeros_like(arcs)
        for step in range(self._served):
            counts += np.roll(arcs, -step, axis=1)
        return counts.reshape(-1)
