"""From an update to what is uploaded: select, quantise, mask. The heart of the client.

x_i(ℓ) = ȳ_i(ℓ) + r_i(ℓ) + Σ_{j > i} r_ij(ℓ) − Σ_{j < i} r_ij(ℓ) over the blocks that the pattern gives to user i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import AgreedSecret, PrivateSeed
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns import ALL, BlockIds
from sparsesecagg.protocol.locations import encode_locations
from sparsesecagg.protocol.masking import Mask, RowMasks, add_up, pair_seeds, private_mask_seed
from sparsesecagg.protocol.membership import Members
from sparsesecagg.protocol.parameters import RoundParameters

_PIECE = 1 << 16
"""Coordinates quantised at a time: their floats and random numbers stay in the cache."""

Update = NDArray[np.floating[Any]]

Trace = Callable[[slice | NDArray[np.int64], NDArray[Any]], None]
"""Told where in the flat array of blocks the quantised integers belong, before masking. For simulations and tests."""


@dataclass(frozen=True)
class MaskedUpdate:
    """The content of an upload."""

    locations: bytes
    words: NDArray[Any]
    clipped: int


def mask_update(
    members: Members,
    user: int,
    update: Update,
    weight: int,
    *,
    agreed: Callable[[int], AgreedSecret],
    private_seed: PrivateSeed,
    rng: np.random.Generator,
    trace: Trace | None = None,
) -> MaskedUpdate:
    """Return the masked words of the blocks that `user` sends.

    `agreed` returns the secret that the mask keys of `user` and a peer agree on. `rng` rounds; it needs no secrecy.
    """
    params, pattern = members.directory.params, members.pattern
    factor = _check(update, weight, params)
    shared = _shared_masks(members, user, agreed)
    private = Mask(MaskStream(private_mask_seed(private_seed, members.context, user), params.word), ALL, positive=True)
    if pattern.public:
        selected = pattern.selected(user, [mask.rows for mask in shared])
        blocks = range(params.layout.blocks) if isinstance(selected, slice) else selected.tolist()
        masks = [*_within(selected, shared), private]
        words, clipped = _Blocks(params, masks, len(blocks), rng, trace).mask(update, weight, factor, blocks)
        return MaskedUpdate(b"", words, clipped)
    # A pattern that only pairs know sends the coordinates at which pairs have drawn a mask, and no others.
    coordinates, sums = add_up(shared, params.word)
    integers, clipped = params.quantizer.quantize(update.take(coordinates), factor, rng)
    if trace:
        trace(coordinates, integers)
    sums += params.word.embed(integers)
    RowMasks([private], 1, params.word).add(0, sums)
    return MaskedUpdate(encode_locations(coordinates, params.dim), params.word.reduce(sums), clipped)


def _check(update: Update, weight: int, params: RoundParameters) -> float:
    """Check shape, type and weight; return the factor that the weight puts on the update."""
    if not isinstance(update, np.ndarray) or update.dtype.kind != "f":
        found = getattr(update, "dtype", type(update).__name__)
        raise InvalidInput("update", f"must be a NumPy array of floats, not {found}")
    if update.shape != (params.dim,):
        raise InvalidInput("update", f"must have shape ({params.dim},), not {update.shape}")
    if params.max_weight == 0 and weight != 1:
        raise InvalidInput("weight", "must be 1 in a round without weights: set max_weight")
    if params.max_weight and not 0 <= weight <= params.max_weight:
        raise InvalidInput("weight", f"must be from 0 to {params.max_weight}")
    return weight / params.max_weight if params.max_weight else 1.0


def _shared_masks(members: Members, user: int, agreed: Callable[[int], AgreedSecret]) -> list[Mask]:
    """Return the masks that the user shares with its peers, over all blocks."""
    pattern, word = members.pattern, members.directory.params.word
    peers = pattern.peers(user)
    seeds = [pair_seeds(agreed(peer), members.context, user, peer) for peer in peers]
    rows = pattern.shared(user, peers, [pattern_seed for _, pattern_seed in seeds])
    return [
        Mask(MaskStream(mask_seed, word), blocks, positive=user < peer)
        for peer, (mask_seed, _), blocks in zip(peers, seeds, rows, strict=True)
    ]


def _within(selected: BlockIds, masks: Sequence[Mask]) -> Sequence[Mask]:
    """Return the masks with their rows counted within the selected blocks, which contain them all."""
    if isinstance(selected, slice):
        return masks
    return [Mask(mask.stream, np.searchsorted(selected, np.asarray(mask.rows)), mask.positive) for mask in masks]


class _Blocks:
    """Quantises and masks whole blocks piece by piece, so that memory stays at the size of the upload."""

    def __init__(
        self, params: RoundParameters, masks: Sequence[Mask], rows: int, rng: np.random.Generator, trace: Trace | None
    ) -> None:
        self._params = params
        self._masks = RowMasks(masks, rows, params.word)
        self._rng = rng
        self._trace = trace
        self._words = np.empty((rows, params.width), params.word.dtype)

    def mask(self, update: Update, weight: int, factor: float, blocks: Sequence[int]) -> tuple[NDArray[Any], int]:
        """Return the masked words, shape (blocks, width), and how many values were clipped."""
        layout, quantizer, digits = self._params.layout, self._params.quantizer, self._params.digits
        total = 0
        for row, block in enumerate(blocks):
            clipped = 0
            for start in range(0, layout.length, _PIECE):
                values = layout.piece(update, block, start, min(layout.length, start + _PIECE))
                integers, beyond = quantizer.quantize(values, factor, self._rng)
                clipped += beyond
                self._mask_piece(row, block, start, integers)
            private = digits.write((weight if self._params.max_weight else 0, clipped))
            self._mask_piece(row, block, layout.length, private)
            total += clipped
        return self._words, total

    def _mask_piece(self, row: int, block: int, start: int, integers: NDArray[Any]) -> None:
        if self._trace:
            offset = block * self._params.width + start
            self._trace(slice(offset, offset + len(integers)), integers)
        sums = self._params.word.embed(integers)
        self._masks.add(row, sums)
        self._words[row, start : start + len(integers)] = self._params.word.reduce(sums)
