"""`pairwise`: a user sends the coordinates at which it has drawn a mask with some peer, and says which they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.field import unpack
from sparsesecagg.patterns.pairwise import draw_positions, edge_probability
from sparsesecagg.protocol.locations import decode_locations, encode_locations
from sparsesecagg.protocol.masking import DrawnMask, Mask, WholeMasks, add_to_column, add_up
from sparsesecagg.protocol.messages import Upload
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.work import MaskedUpdate, Pair, Total, Trace, UpdateSource, Work


class Drawn(Work):
    """Time and memory follow the coordinates that are sent; the server keeps a byte or two for each of them."""

    def __init__(self, params: Parameters, committee: int, round_number: int, context: bytes) -> None:
        super().__init__(params, committee, round_number, context)
        self._sums: NDArray[Any] | None = None
        self._contributors = np.zeros(0, np.min_scalar_type(params.clients))
        self._steps: dict[int, NDArray[np.unsignedinteger[Any]]] = {}
        """By user: the steps between the coordinates it sent; to add them up is faster than to decode them again."""

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
        coordinates, sums = add_up(self.shared_masks(pairs, [pair.user < pair.peer for pair in pairs]), word)
        integers, clipped = self.params.quantizer.quantize(update.take(coordinates), self.factor(weight), rng)
        if trace:
            trace(coordinates, integers)
        sums += word.embed(integers)
        WholeMasks([private], word).add(sums)
        return MaskedUpdate(encode_locations(coordinates, self.params.dim), word.reduce(sums), clipped)

    def add(self, upload: Upload) -> None:
        """Add one upload's words at its coordinates."""
        coordinates = decode_locations(upload.locations, self.params.dim)
        words = unpack(upload.words, len(coordinates), self.params.word)
        if self._sums is None:
            self._sums = self.params.word.zeros((self.params.dim,))
            self._contributors = np.zeros(self.params.dim, self._contributors.dtype)
        steps = np.diff(coordinates, prepend=0)
        self._steps[upload.sender] = steps.astype(np.min_scalar_type(steps.max(initial=0)))
        # `at` is fast only between equal types.
        np.add.at(self._sums, coordinates, words.astype(self._sums.dtype))
        np.add.at(self._contributors, coordinates, self._contributors.dtype.type(1))

    def open(self, private: Mapping[int, SharedSecret], orphaned: Sequence[Pair]) -> None:
        """Take away the masks that are left in the sum."""
        assert self._sums is not None  # noqa: S101  # A committee is opened only if users have uploaded.
        for user, seed in private.items():
            mask = self.private_mask(user, seed, positive=False)
            rows = np.cumsum(self._steps[user], dtype=np.int64)
            add_to_column(self._sums, [DrawnMask(mask.stream, mask.positive, rows)], self.params.word)
        # The survivor added its mask if its number is the smaller one; now it is taken away.
        masks = self.shared_masks(orphaned, [pair.user > pair.peer for pair in orphaned])
        add_to_column(self._sums, masks, self.params.word)

    def add_to(self, total: Total) -> None:
        """Add the values at all coordinates to the total."""
        assert self._sums is not None  # noqa: S101
        total.values += self.params.word.lift(self._sums)
        total.contributors += self._contributors
        self._sums = None

    def shared_masks(self, pairs: Sequence[Pair], positive: Sequence[bool]) -> list[DrawnMask]:
        """Return the masks of pairs at the coordinates that each has drawn."""
        params = self.params
        seeds = [self.seeds(pair) for pair in pairs]
        probability = edge_probability(params.alpha_q32, params.degree)
        rows = draw_positions([pattern_seed for _, pattern_seed in seeds], params.dim, probability)
        return [
            DrawnMask(MaskStream(mask_seed, params.word), plus, drawn)
            for (mask_seed, _), plus, drawn in zip(seeds, positive, rows, strict=True)
        ]
