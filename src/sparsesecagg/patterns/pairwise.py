"""`pairwise`: the pattern of the SparseSecAgg paper. User i sends coordinate ℓ if b_ij(ℓ) = 1 for some peer j.

Published for reproduction and study. With mean degree α < 1 the mask graph at a coordinate is mostly single edges, so
the server learns the sums of small components and, after dropouts, many single values: see docs/privacy.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns.base import Pattern, PatternSettings
from sparsesecagg.patterns.gaps import bernoulli_positions
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.patterns.layout import BlockIds, Layout


class Pairwise(Pattern):
    """A block is one coordinate; a pair's shared coordinates come from its pattern seed."""

    name = "pairwise"
    public = False
    masks_along_shares = True

    @staticmethod
    def make_layout(settings: PatternSettings) -> Layout:
        """Make each coordinate a block of its own."""
        return Layout(settings.dim, settings.dim, 1)

    @staticmethod
    def contributors(settings: PatternSettings) -> int:
        """Return the cohort's size: by chance everybody may send one coordinate."""
        return settings.clients

    @staticmethod
    def edge_probability(settings: PatternSettings) -> int:
        """Return P[b_ij(ℓ) = 1] = α/(N−1) in units of 2^−64, or α/k in a graph of degree k."""
        return (settings.alpha << 32) // _degree(settings)

    @staticmethod
    def selection_probability(settings: PatternSettings) -> float:
        """Return p = 1 − (1 − α/(N−1))^(N−1)."""
        degree = _degree(settings)
        return 1.0 - (1.0 - settings.alpha / 2**32 / degree) ** degree

    def peers(self, user: int) -> list[int]:
        """Return the neighbours that finished SHARE_KEYS."""
        return self.member_neighbours(user)

    def shared(self, user: int, peers: Sequence[int], seeds: Sequence[PatternSeed]) -> list[BlockIds]:
        """Draw b_ij from each pair's seed."""
        return list(bernoulli_positions(seeds, self.settings.dim, self.edge_probability(self.settings)))

    def selected(self, user: int, shared: Sequence[BlockIds]) -> BlockIds:
        """Return the union of the pairs' coordinates (U_i in the paper)."""
        return np.unique(np.concatenate([np.empty(0, np.int64), *(np.asarray(positions) for positions in shared)]))

    def survivors_per_block(self, survivors: Users) -> None:
        """Return None: the pattern is known to pairs only."""


def _degree(settings: PatternSettings) -> int:
    return settings.degree if settings.degree is not None else settings.clients - 1
