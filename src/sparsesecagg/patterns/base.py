"""What a pattern is: who sends which block, and which pairs mask where.

Client and server know patterns only through this interface. A pattern is made for one round, from public facts: the
round's parameters, the users who finished SHARE_KEYS, the public seed and the share graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns.graphs import CircleGraph, Users
from sparsesecagg.patterns.layout import BlockIds, Layout


@dataclass(frozen=True)
class PatternSettings:
    """The public choices that a pattern depends on."""

    clients: int
    dim: int
    alpha: int
    """α in units of 2^−32: an integer, so that no floating point takes part in a pattern."""
    degree: int | None
    """Neighbours per user in the mask graph; None for a complete graph."""
    stripes: int
    disjoint: bool = False
    """Nobody may serve two blocks: a private integer that stands in each could be solved for from their sums."""


class Pattern(ABC):
    """Who sends what, who masks with whom, for one round."""

    name: ClassVar[str]
    public: ClassVar[bool]
    """Everybody can tell who sends which block: no locations travel."""
    masks_along_shares: ClassVar[bool]
    """The mask graph is the share graph, so pairs can agree on masks before UPLOAD."""

    def __init__(self, settings: PatternSettings, members: Users, seed: bytes, graph: CircleGraph) -> None:
        """`members` are sorted; `graph` is the share graph over all who advertised keys."""
        self.settings = settings
        self.members = members
        self.seed = seed
        self.graph = graph
        self.layout = self.make_layout(settings)
        self._is_member = np.zeros(settings.clients, np.bool_)
        self._is_member[members] = True

    @staticmethod
    @abstractmethod
    def make_layout(settings: PatternSettings) -> Layout:
        """Return the blocks; they depend on the parameters alone."""

    @staticmethod
    @abstractmethod
    def contributors(settings: PatternSettings) -> int:
        """Return the largest number of users that may send one block."""

    @staticmethod
    @abstractmethod
    def selection_probability(settings: PatternSettings) -> float:
        """Return the probability that a user sends a given coordinate (p in the paper)."""

    @abstractmethod
    def peers(self, user: int) -> list[int]:
        """Return the members that may share a mask with `user`, sorted."""

    @abstractmethod
    def shared(self, user: int, peers: Sequence[int], seeds: Sequence[PatternSeed]) -> list[BlockIds]:
        """Return, for each peer, the blocks that `user` and the peer mask together.

        `seeds` are the pairs' pattern seeds; a public pattern needs none of them.
        """

    @abstractmethod
    def selected(self, user: int, shared: Sequence[BlockIds]) -> BlockIds:
        """Return the blocks that `user` sends, given what it shares with all its peers."""

    @abstractmethod
    def survivors_per_block(self, survivors: Users) -> NDArray[np.int64] | None:
        """Return how many survivors sent each block, or None if only the server can tell."""

    def member_neighbours(self, user: int) -> list[int]:
        """Return the neighbours in the share graph that finished SHARE_KEYS."""
        around = self.graph.neighbours(user)
        neighbours: list[int] = around[self._is_member[around]].tolist()
        return neighbours
