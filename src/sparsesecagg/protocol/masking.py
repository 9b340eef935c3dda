"""Adding masks to blocks: the hot loop of client and server.

A mask is a stream of words and the blocks it covers, in order. Both sides of a pair read the same stream over the same
blocks, one with a plus and one with a minus, so the pair cancels in the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.kdf import derive
from sparsesecagg.crypto.secrets import AgreedSecret, MaskSeed, PatternSeed, PrivateSeed
from sparsesecagg.crypto.stream import CHUNK_WORDS, MaskStream, Scratch
from sparsesecagg.field import Word
from sparsesecagg.field.words import Accumulator
from sparsesecagg.patterns import BlockIds

_RANK_TABLE_LIMIT = 1 << 24


@dataclass(frozen=True, slots=True)
class Mask:
    """One stream, the rows of the sum that it covers, and whether it is added or taken away."""

    stream: MaskStream
    rows: BlockIds
    positive: bool


def pair_seeds(agreed: AgreedSecret, context: bytes, one: int, other: int) -> tuple[MaskSeed, PatternSeed]:
    """Derive the seeds of a pair's masks and of its pattern; the same for both sides."""
    names = min(one, other).to_bytes(4, "little") + max(one, other).to_bytes(4, "little")
    both = derive(agreed.reveal(), "pair", context, names, length=64)
    return MaskSeed(both[:32]), PatternSeed(both[32:])


def private_mask_seed(seed: PrivateSeed, context: bytes, user: int) -> MaskSeed:
    """Derive the seed of a user's private mask."""
    return MaskSeed(derive(seed.reveal(), "private mask", context, user.to_bytes(4, "little")))


class RowMasks:
    """Masks on rows of words. Rows must be visited in increasing order, since streams only run forward."""

    def __init__(self, masks: Sequence[Mask], rows: int, word: Word) -> None:
        self._scratch = Scratch(word, CHUNK_WORDS)
        self._by_row: list[list[Mask]] = [[] for _ in range(rows)]
        for mask in masks:
            for row in range(rows) if isinstance(mask.rows, slice) else mask.rows.tolist():
                self._by_row[row].append(mask)

    def add(self, row: int, piece: Accumulator) -> None:
        """Add the next words of all masks on a row to the next piece of it, in place.

        Pieces of CHUNK_WORDS stay in the cache while one mask after the other is added.
        """
        for start in range(0, len(piece), CHUNK_WORDS):
            part = piece[start : start + CHUNK_WORDS]
            for mask in self._by_row[row]:
                words = mask.stream.words(len(part), self._scratch)
                if mask.positive:
                    np.add(part, words, out=part)
                else:
                    np.subtract(part, words, out=part)


def add_to_column(column: Accumulator, masks: Sequence[Mask], word: Word) -> None:
    """Add masks whose blocks are single coordinates to a column of words, in place."""
    scratch = Scratch(word, CHUNK_WORDS)
    for mask in masks:
        rows: NDArray[Any] = np.arange(len(column)) if isinstance(mask.rows, slice) else mask.rows
        for start in range(0, len(rows), scratch.words):
            part = rows[start : start + scratch.words]
            words = mask.stream.words(len(part), scratch)
            # A mask's rows are distinct, so indexed addition loses nothing.
            if mask.positive:
                column[part] += words
            else:
                column[part] -= words


def local_rows(selected: NDArray[np.int64], parts: Sequence[NDArray[np.int64]], blocks: int) -> list[NDArray[np.int64]]:
    """Return the places of each part's blocks among the sorted `selected`, which contain them all."""
    if blocks > _RANK_TABLE_LIMIT or len(selected) < 1 << 10:
        return [np.searchsorted(selected, part) for part in parts]
    rank = np.empty(blocks, np.int64)  # A table beats a search as long as it is not far larger than the cache.
    rank[selected] = np.arange(len(selected))
    return [rank[part] for part in parts]
