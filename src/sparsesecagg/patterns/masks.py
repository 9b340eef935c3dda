"""Masks: what they are derived from, and adding them up, the hot loop of client and server.

Both sides of a pair read the same stream of words over the same coordinates, one with a plus and one with a minus, so
the pair cancels in the sum. A mask of `sliced` covers the whole upload; a mask of `pairwise` the coordinates that the
pair has drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.kdf import names, one_step
from sparsesecagg.crypto.secrets import AgreedSecret, MaskSeed, PatternSeed, SharedSecret
from sparsesecagg.crypto.stream import CHUNK_BYTES, ONCE_BYTES, MaskStream, Scratch, words_side_by_side
from sparsesecagg.field import Accumulator, Word, Words
from sparsesecagg.patterns.gaps import Positions

_THREAD_CHUNK_BYTES = 4 * CHUNK_BYTES
"""Read at a time by threads: with less they wait for each other's Python more often than for AES."""


class Pair(NamedTuple):
    """Two users that share a mask, and what their mask keys agree on."""

    user: int
    peer: int
    agreed: AgreedSecret


@dataclass(slots=True)  # Frozen ones take twice as long to make, and there are thousands.
class Mask:
    """One stream, and whether it is added or taken away."""

    stream: MaskStream
    positive: bool


@dataclass(slots=True)
class DrawnMask(Mask):
    """A mask on some coordinates only."""

    rows: Positions


def mask_seeds(pairs: Sequence[Pair], context: bytes) -> list[MaskSeed]:
    """Derive the seeds of pairs' masks; the same for both sides."""
    agreed = [pair.agreed.reveal() for pair in pairs]
    return [MaskSeed(seed) for seed in one_step(agreed, "pair mask", context, map(_names, pairs))]


def pattern_seeds(pairs: Sequence[Pair], context: bytes) -> list[PatternSeed]:
    """Derive the seeds of pairs' patterns; the same for both sides."""
    agreed = [pair.agreed.reveal() for pair in pairs]
    return [PatternSeed(seed) for seed in one_step(agreed, "pair pattern", context, map(_names, pairs))]


def _names(pair: Pair) -> bytes:
    user, peer, _ = pair
    return names(user, peer) if user < peer else names(peer, user)


def private_mask_seeds(seeds: Mapping[int, SharedSecret], context: bytes) -> list[MaskSeed]:
    """Derive the seeds of users' private masks."""
    secrets, users = [seed.reveal() for seed in seeds.values()], [user.to_bytes(4, "little") for user in seeds]
    return [MaskSeed(seed) for seed in one_step(secrets, "private mask", context, users)]


class WholeMasks:
    """Masks that cover everything, piece by piece in order, since streams only run forward."""

    def __init__(self, masks: Iterable[Mask], word: Word, length: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._masks = list(masks)
        self._once = length * word.dtype.itemsize <= ONCE_BYTES
        self.step = max(1, length) if self._once else chunk_bytes // word.dtype.itemsize
        """Words read at a time: they stay in the cache while one mask after the other is added."""
        self._scratch = Scratch(word, self.step)

    def add(self, piece: Accumulator) -> None:
        """Add the next words of all masks to the next piece, in place; all but the last have whole steps."""
        scratch, read = self._scratch, MaskStream.only_words if self._once else MaskStream.words
        for start in range(0, len(piece), self.step):
            part = piece[start : start + self.step]
            count = len(part)
            for mask in self._masks:
                combine = np.add if mask.positive else np.subtract
                combine(part, read(mask.stream, count, scratch), part)


def add_whole(sums: Accumulator, masks: Sequence[Mask], word: Word, threads: int = 1) -> None:
    """Add masks to a whole sum, in place. Of a large one each thread takes some masks: ciphers run side by side."""
    if threads < 2 or sums.nbytes < CHUNK_BYTES:
        WholeMasks(masks, word, len(sums)).add(sums)
        return
    targets = [sums, *(word.zeros(sums.shape) for _ in range(threads - 1))]

    def add_some(number: int) -> None:
        WholeMasks(masks[number::threads], word, len(sums), _THREAD_CHUNK_BYTES).add(targets[number])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(add_some, range(threads)))
    for other in targets[1:]:
        np.add(sums, other, out=sums)


def add_to_column(column: Accumulator, masks: Sequence[DrawnMask], word: Word) -> None:
    """Add masks on drawn coordinates to a column of words, in place."""
    if masks:
        rows, words = _side_by_side(masks, word)
        # `at` is fast only between types that are one object, and counts a coordinate as often as masks meet at it.
        np.add.at(column, np.concatenate(rows), words.astype(word.accumulator))


def add_up(masks: Sequence[DrawnMask], word: Word) -> tuple[NDArray[np.int64], Accumulator]:
    """Add up masks on drawn coordinates; return the coordinates that they cover, sorted, and the sum at each.

    One sort brings together the masks that meet at a coordinate, so that time and memory follow the masks' words and
    not the dimension.
    """
    coordinates, words = _sorted_by_coordinate(*_side_by_side(masks, word))
    sums = words.astype(word.accumulator, copy=False)
    # Few masks meet: those behind the first at their coordinate are added to it and left out.
    first = np.ones(len(sums), np.bool_)
    np.not_equal(coordinates[1:], coordinates[:-1], out=first[1:])
    again = np.flatnonzero(~first)
    follows_first = np.diff(again, prepend=-1) != 1
    np.add.at(sums, np.maximum.accumulate((again - 1) * follows_first), sums[again])
    return coordinates[first], sums[first]


def _sorted_by_coordinate(rows: Sequence[Positions], words: Words) -> tuple[NDArray[np.int64], Words]:
    """Sort the words by their coordinates; the order of words at one coordinate is of no account."""
    coordinates = np.concatenate([np.empty(0, np.int64), *rows], dtype=np.int64)
    if any(len(each) and int(each[-1]) >> 31 for each in rows):
        order = np.argsort(coordinates)
        return coordinates[order], words[order]
    # Coordinate and word fit one number of 64 bits, and numbers sort twice as fast as they can be put in order.
    coordinates <<= 32
    coordinates |= words
    coordinates.sort()
    sorted_words = coordinates.astype(words.dtype)  # The lowest bits.
    coordinates >>= 32
    return coordinates, sorted_words


def _side_by_side(masks: Sequence[DrawnMask], word: Word) -> tuple[list[Positions], Words]:
    """Return the coordinates of each mask, sorted, and the words to add there, one mask behind the other."""
    rows = [mask.rows for mask in masks]
    counts = [len(each) for each in rows]
    words = words_side_by_side([mask.stream for mask in masks], counts, word)
    ends = list(accumulate(counts, initial=0))
    # Neighbours mostly have the same sign, since a user's peers are sorted: they are turned together.
    turns = [place for place in range(1, len(masks)) if masks[place].positive != masks[place - 1].positive]
    for first, behind in pairwise([0, *turns, len(masks)]):
        if first < behind and not masks[first].positive:
            word.negate(words[ends[first] : ends[behind]])
    return rows, words
