"""`pairwise`: a user sends the coordinates at which it has drawn a mask with some peer, and says which they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.field import unpack
from sparsesecagg.patterns.gaps import ONE
from sparsesecagg.patterns.pairwise import draw_positions, edge_probability
from sparsesecagg.protocol.locations import decode_steps, encode_locations
from sparsesecagg.protocol.masking import DrawnMask, Mask, WholeMasks, add_to_column, add_up
from sparsesecagg.protocol.messages import Upload
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.work import MaskedUpdate, Pair, Total, Trace, UpdateSource, Work

_PIECE = 1 << 16
"""Coordinates, or words of masks, that are worked on at a time: they stay in the cache."""


_WAITING = 1 << 26
"""Bytes of uploads that wait until their private masks are known: both are then added in one pass."""


class Drawn(Work):
    """Time and memory follow the coordinates that are sent; the server keeps a byte or two for each of them.

    Of the first uploads it also keeps the words until the sum is opened, up to a fixed size.
    """

    def __init__(self, params: Parameters, committee: int, round_number: int, context: bytes) -> None:
        super().__init__(params, committee, round_number, context)
        self._sums: NDArray[Any] | None = None
        self._contributors = np.zeros(0, np.min_scalar_type(params.clients))
        self._steps: dict[int, NDArray[np.unsignedinteger[Any]]] = {}
        """By user: the steps between the coordinates it sent; to add them up is faster than to decode them again."""
        self._words: dict[int, NDArray[Any]] = {}
        """By user: words that were not added yet."""
        self._waiting = 0

    def mask(
        self,
        update: UpdateSource,
        weight: int,
        pairs: Sequence[Pair],
        private: Mask,
        rng: np.random.Generator,
        trace: Trace | None = None,
    ) -> MaskedUpdate:
        """Return the masked words at the coordinates that pairs have drawn, and no others."""
        word = self.params.word
        coordinates, sums = add_up(list(self.shared_masks(pairs, [pair.user < pair.peer for pair in pairs])), word)
        integers, clipped = self.params.quantizer.quantize(update.take(coordinates), self.factor(weight), rng)
        if trace:
            trace(coordinates, integers)
        sums += word.embed(integers)
        WholeMasks([private], word).add(sums)
        return MaskedUpdate(encode_locations(coordinates, self.params.dim), word.reduce(sums), clipped)

    def add(self, upload: Upload) -> None:
        """Add one upload's words at its coordinates, or keep them."""
        steps = decode_steps(upload.locations, self.params.dim)
        words = unpack(upload.words, len(steps), self.params.word)
        if self._sums is None:
            self._sums = self.params.word.zeros((self.params.dim,))
            self._contributors = np.zeros(self.params.dim, self._contributors.dtype)
        self._steps[upload.sender] = steps.astype(np.min_scalar_type(steps.max(initial=0)))
        if self._waiting + words.nbytes <= _WAITING:
            self._words[upload.sender] = words.copy()  # Not what a message lies in.
            self._waiting += words.nbytes
        else:
            self._add_at(_coordinates(steps), self.params.word.embed(words))

    def _add_at(self, coordinates: NDArray[np.int64], words: NDArray[Any]) -> None:
        """Add what one user contributes."""
        assert self._sums is not None  # noqa: S101
        # `at` is fast only between equal types, and with aligned memory, which words in a message don't have.
        np.add.at(self._sums, coordinates, words)
        np.add.at(self._contributors, coordinates, self._contributors.dtype.type(1))

    def open(self, private: Mapping[int, SharedSecret], orphaned: Sequence[Pair]) -> None:
        """Take away the masks that are left in the sum."""
        assert self._sums is not None  # noqa: S101  # A committee is opened only if users have uploaded.
        for user, seed in private.items():
            mask = self.private_mask(user, seed, positive=False)
            coordinates = _coordinates(self._steps[user])
            words = self._words.pop(user, None)
            if words is None:
                add_to_column(self._sums, [DrawnMask(mask.stream, mask.positive, coordinates)], self.params.word)
            else:
                sums = self.params.word.embed(words)
                WholeMasks([mask], self.params.word).add(sums)
                self._add_at(coordinates, sums)
        # The survivor added its mask if its number is the smaller one; now it is taken away.
        masks = self.shared_masks(orphaned, [pair.user > pair.peer for pair in orphaned])
        add_to_column(self._sums, masks, self.params.word)

    def add_to(self, total: Total) -> None:
        """Add the values at all coordinates to the total."""
        assert self._sums is not None  # noqa: S101
        for start in range(0, len(self._sums), _PIECE):
            total.values[start : start + _PIECE] += self.params.word.lift_short(self._sums[start : start + _PIECE])
        total.contributors += self._contributors
        self._sums = None

    def shared_masks(self, pairs: Sequence[Pair], positive: Sequence[bool]) -> Iterator[DrawnMask]:
        """Yield the masks of pairs at the coordinates that each has drawn.

        Patterns are drawn for some pairs at a time, so that memory stays flat when a server has many.
        """
        params = self.params
        probability = edge_probability(params.alpha_q32, params.degree)
        step = max(1, _PIECE // (params.dim * probability // ONE + 1))
        for start in range(0, len(pairs), step):
            seeds = [self.seeds(pair) for pair in pairs[start : start + step]]
            rows = draw_positions([pattern_seed for _, pattern_seed in seeds], params.dim, probability)
            for (mask_seed, _), plus, drawn in zip(seeds, positive[start : start + step], rows, strict=True):
                yield DrawnMask(MaskStream(mask_seed, params.word), plus, drawn)


def _coordinates(steps: NDArray[Any]) -> NDArray[np.int64]:
    """Return where steps lead, the first from −1."""
    coordinates: NDArray[np.int64] = np.cumsum(steps, dtype=np.int64)
    coordinates -= 1
    return coordinates
