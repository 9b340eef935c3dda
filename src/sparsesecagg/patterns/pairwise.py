"""`pairwise`: the pattern of the SparseSecAgg paper. User i sends coordinate ℓ if b_ij(ℓ) = 1 for some peer j.

Published for reproduction and study. With mean degree α < 1 the mask graph at a coordinate is mostly single edges, so
the server learns the sums of small components and, after dropouts, many single values: see docs/privacy.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.field import packed_size, unpack
from sparsesecagg.patterns.base import (
    GroupSum,
    Index,
    Keep,
    MaskedSum,
    MaskedUpdate,
    Packed,
    Pattern,
    Trace,
    UpdateSource,
    as_it_is,
)
from sparsesecagg.patterns.gaps import ONE, bernoulli_positions, decode_steps, encode_locations
from sparsesecagg.patterns.masks import (
    DrawnMask,
    Mask,
    Pair,
    add_to_column,
    add_up,
    add_whole,
    mask_seeds,
    pattern_seeds,
)
from sparsesecagg.rounding import Digits, Step

_PIECE = 1 << 16
"""Words of masks that are worked on at a time: they stay in the cache."""


class Pairwise(Pattern):
    """Coordinates that pairs draw secretly, each with probability α/(N − 1)."""

    name = "pairwise"
    protects = False
    several_groups = False

    @property
    def length(self) -> int:
        return self.layout.dim

    @property
    def peers(self) -> int:
        """With how many others a user may share a mask."""
        return self.layout.neighbours or self.layout.clients - 1

    @property
    def edge_probability(self) -> int:
        """P[b_ij(ℓ) = 1] = α/(N−1) in units of 2^−64, or α/k in a graph of degree k."""
        return (self.layout.alpha_q32 << 32) // self.peers

    @cached_property
    def digits(self) -> Digits:
        """None: with secret locations no slice has a place for them."""
        return Digits.fit(self.layout.word, self.layout.contributors, (0, 0))

    def fraction(self, members: int | None = None) -> float:
        """Return p = 1 − (1 − α/(N−1))^(M−1): a user draws with the M members of the round."""
        there = self.layout.neighbours or (members or self.layout.clients) - 1
        return 1.0 - (1.0 - self.layout.alpha / self.peers) ** there

    @property
    def coverage(self) -> float:
        """The fraction that at least one of all pairs has drawn."""
        pairs = self.layout.clients * self.peers // 2
        return 1.0 - (1.0 - self.layout.alpha / self.peers) ** pairs

    def default_threshold(self, sizes: tuple[int, ...], dropout: float, colluding: float) -> int:
        """Return more than half of a secret's holders, as the paper has it."""
        return (self.layout.neighbours + 1 if self.layout.neighbours else min(sizes)) // 2 + 1

    def upload_size(self) -> int:
        """Return the bytes of words and locations that are expected; the locations near their entropy."""
        p = self.fraction()
        entropy = 0.0 if p in (0.0, 1.0) else -p * np.log2(p) - (1 - p) * np.log2(1 - p)
        dim = self.layout.dim
        return packed_size(round(p * dim), self.layout.word.bits) + round(min(1.0, 1.03 * entropy) * dim / 8)

    def masked_sum(self, group: int, round_number: int, seed: bytes, context: bytes) -> PairwiseSum:
        """Return the sum of everybody; the pattern follows from the pairs' own secrets and the context."""
        return PairwiseSum(self, group, context)


class PairwiseSum(MaskedSum):
    """Time and memory follow the coordinates that are sent. The server keeps uploads until the sum is opened."""

    def __init__(self, pattern: Pairwise, group: int, context: bytes) -> None:
        super().__init__(pattern, group, context)
        self._probability = pattern.edge_probability
        self._uploads: dict[int, tuple[NDArray[np.unsignedinteger[Any]], Packed]] = {}
        """By user: the steps between its coordinates, as short integers, and its words."""

    def indices(self) -> Iterable[Index]:
        return [slice(0, self.layout.dim)]

    def mask(
        self,
        update: UpdateSource,
        steps: Sequence[Step],
        weight: int,
        pairs: Sequence[Pair],
        private: Mask,
        trace: Trace | None = None,
    ) -> MaskedUpdate:
        """Return the masked words at the coordinates that pairs have drawn, and no others."""
        word = self.layout.word
        coordinates, sums = add_up(self.shared_masks(pairs, [pair.user < pair.peer for pair in pairs]), word)
        integers: NDArray[Any] = update.take(coordinates)
        for step in steps:
            integers = step.apply(integers)
        if trace:
            trace(coordinates, integers)
        sums += word.embed(integers)
        add_whole(sums, [private], word)
        clipped = sum(step.clipped for step in steps)
        return MaskedUpdate(encode_locations(coordinates, self.layout.dim), word.reduce(sums), clipped)

    def add(self, user: int, locations: bytes, words: Packed, keep: Keep = as_it_is) -> None:
        """Read the locations, check the words, keep both."""
        steps = decode_steps(locations, self.layout.dim)
        unpack(words, len(steps), self.layout.word)
        self._uploads[user] = steps.astype(np.min_scalar_type(steps.max(initial=0))), keep(user, words)

    def remove(self, user: int) -> None:
        del self._uploads[user]

    def open(self, private: Mapping[int, SharedSecret], orphaned: Sequence[Pair], threads: int = 1) -> None:
        """Add up the words without their private masks, then take away the masks that are left."""
        layout, word = self.layout, self.layout.word
        self._sums = word.zeros((layout.dim,))
        self._contributors = np.zeros(layout.dim, np.min_scalar_type(layout.clients))
        for user, (steps, packed) in self._uploads.items():
            coordinates = np.cumsum(steps, dtype=np.int64)
            coordinates -= 1
            words = word.embed(unpack(packed, len(steps), word))
            add_whole(words, [self.private_mask(user, private[user], positive=False)], word)
            # `at` is fast only between equal types.
            np.add.at(self._sums, coordinates, words)
            np.add.at(self._contributors, coordinates, self._contributors.dtype.type(1))
        # The user in the sum added the mask if its number is the smaller one; now it is taken away. Some pairs at a
        # time, so that memory stays flat when there are many.
        step = max(1, _PIECE // (layout.dim * self._probability // ONE + 1))
        for start in range(0, len(orphaned), step):
            some = orphaned[start : start + step]
            add_to_column(self._sums, self.shared_masks(some, [pair.user > pair.peer for pair in some]), word)

    def result(self) -> GroupSum:
        return GroupSum(
            group=self.group,
            users=tuple(sorted(self._uploads)),
            indices=self.indices(),
            values=self.layout.word.lift_short(self._sums),
            contributors=self._contributors,
            weight=None,
            clipped=None,
        )

    def shared_masks(self, pairs: Sequence[Pair], positive: Sequence[bool]) -> list[DrawnMask]:
        """Return the masks of pairs at the coordinates that each has drawn."""
        rows = bernoulli_positions(pattern_seeds(pairs, self.context), self.layout.dim, self._probability)
        return [
            DrawnMask(MaskStream(seed, self.layout.word), plus, drawn)
            for seed, plus, drawn in zip(mask_seeds(pairs, self.context), positive, rows, strict=True)
        ]
