"""`full`: everybody sends everything. SecAgg with a complete mask graph, SecAgg+ with a k-regular one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns.base import Pattern, PatternSettings
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.patterns.layout import ALL, BlockIds, Layout

BLOCK = 1 << 16
"""Coordinates per block at most; a block is what client and server hold in memory at a time."""


class Full(Pattern):
    """Everyone sends every block and masks it with every neighbour."""

    name = "full"
    public = True
    masks_along_shares = True

    @staticmethod
    def make_layout(settings: PatternSettings) -> Layout:
        """Cut into equal blocks of at most `BLOCK` coordinates."""
        return Layout.cut(settings.dim, -(-settings.dim // BLOCK))

    @staticmethod
    def contributors(settings: PatternSettings) -> int:
        """Return the cohort's size."""
        return settings.clients

    @staticmethod
    def selection_probability(settings: PatternSettings) -> float:
        """Return 1."""
        return 1.0

    def peers(self, user: int) -> list[int]:
        """Return the neighbours that finished SHARE_KEYS."""
        return self.member_neighbours(user)

    def shared(self, user: int, peers: Sequence[int], seeds: Sequence[PatternSeed]) -> list[BlockIds]:
        """Return all blocks for every peer."""
        return [ALL] * len(peers)

    def selected(self, user: int, shared: Sequence[BlockIds]) -> BlockIds:
        """Return all blocks."""
        return ALL

    def survivors_per_block(self, survivors: Users) -> NDArray[np.int64]:
        """Return the number of survivors for every block."""
        return np.full(self.layout.blocks, len(survivors), np.int64)
