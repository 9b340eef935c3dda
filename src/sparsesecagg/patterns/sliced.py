"""`sliced`: everybody in a group sends the same public random part of the model. `full` is the same with α = 1.

α = a/L with small integers. The vector is cut into blocks of L neighbours; of block b, in round r, a group sends the
coordinates at

    (h(b) + shift + a·r + j) mod L,   j < a,

where h(b) is a public pseudo-random offset and `shift` tells groups apart that send different slices. So a slice is
spread evenly over every layer, every coordinate is sent equally often, and nothing about locations travels. Slices hide
nothing and protect nobody: the size of the group does, and noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.field import packed_size, unpack
from sparsesecagg.patterns.base import (
    GroupSum,
    Index,
    Keep,
    Layout,
    MaskedSum,
    MaskedUpdate,
    Packed,
    Pattern,
    Trace,
    UpdateSource,
    as_it_is,
)
from sparsesecagg.patterns.groups import public_stream
from sparsesecagg.patterns.masks import Mask, Pair, WholeMasks, add_whole, mask_seeds
from sparsesecagg.privacy.anonymity import default_threshold
from sparsesecagg.rounding import Digits, Step

_PIECE = 1 << 16
"""Coordinates worked on at a time: their floats and random numbers stay in the cache."""
_LARGEST_BLOCK = 1 << 20
_TOLERANCE = 100
"""What is used may differ from what is asked by one part in this many."""


@lru_cache(maxsize=256)
def block_of(alpha_q32: int) -> tuple[int, int]:
    """Return (a, L), with the smallest L for which a/L is within 1 % of α."""
    one = 1 << 32
    for block in range(1, _LARGEST_BLOCK + 1):
        part = (alpha_q32 * block + one // 2) // one
        if part and abs(part * one - alpha_q32 * block) * _TOLERANCE <= alpha_q32 * block:
            return part, block
    raise InvalidInput("alpha", f"must be at least 2^-20, got {alpha_q32 / one:g}")


@lru_cache(maxsize=2)  # All users of a run, in all rounds, have the same.
def _offsets(seed: bytes, blocks: int, block: int) -> NDArray[np.uint32]:
    """Return h(b) of all blocks: 32-bit draws scaled down to 0 … L − 1."""
    draws = public_stream(seed, "slices").read(4 * blocks).view("<u4").astype(np.uint64)
    draws *= np.uint64(block)
    draws >>= np.uint64(32)
    return draws.astype(np.uint32)


def turns_of(seed: bytes, dim: int, block: int) -> NDArray[np.int32] | None:
    """Return the place of each of the first coordinates in its block of L, counted from the block's offset."""
    if block == 1:
        return None
    offsets = _offsets(seed, -(-dim // block), block)
    return ((np.arange(block, dtype=np.int32)[None, :] - offsets[:, None]) % block).reshape(-1)[:dim]


class Sliced(Pattern):
    """Slices of α of the coordinates, another one each round."""

    name = "sliced"
    short_words = True

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.part, self.block = block_of(layout.alpha_q32)
        if layout.dim < self.block:
            nearest = Fraction(layout.alpha_q32, 1 << 32).limit_denominator(layout.dim)
            raise InvalidInput(
                "alpha",
                f"of {layout.alpha:.5g} sends {self.part} of every {self.block} coordinates, and the model has "
                f"{layout.dim}: use {float(max(nearest, Fraction(1, layout.dim))):.4g}",
            )

    @property
    def length(self) -> int:
        return -(-self.layout.dim // self.block) * self.part

    @cached_property
    def digits(self) -> Digits:
        layout = self.layout
        return Digits.fit(layout.word, layout.contributors, (layout.max_weight, self.length if layout.counts else 0))

    def fraction(self, members: int | None = None) -> float:
        """Return a/L, which does not depend on who takes part."""
        return self.part / self.block

    @property
    def coverage(self) -> float:
        """What all groups together send."""
        return min(1.0, self.layout.slices * self.fraction())

    @property
    def copies(self) -> int:
        """Enough to hold a whole block, wherever they begin."""
        return 1 if self.part == self.block else 2 * self.block - 1

    def default_threshold(self, sizes: tuple[int, ...], dropout: float, colluding: float) -> int:
        """Return a threshold as high as dropouts allow; half of a sparse graph's holders, as in SecAgg+."""
        if self.layout.neighbours:
            return (self.layout.neighbours + 1) // 2 + 1
        return default_threshold(min(sizes), max(sizes), dropout, colluding)

    def upload_size(self) -> int:
        return packed_size(self.length + self.digits.total, self.layout.word.bits)

    def turns(self, seed: bytes) -> NDArray[np.int32] | None:
        return turns_of(seed, self.layout.dim, self.block)

    def masked_sum(self, group: int, round_number: int, seed: bytes, context: bytes) -> SlicedSum:
        layout = self.layout
        shift = group % layout.slices * self.block // layout.slices + self.part * round_number
        return SlicedSum(self, group, context, _Slice(self, shift % self.block, seed))


class _Slice:
    """The coordinates of one slice, piece by piece."""

    def __init__(self, pattern: Sliced, shift: int, seed: bytes) -> None:
        self._dim, self._block, self._part = pattern.layout.dim, pattern.block, pattern.part
        self._shift, self._seed = shift, seed

    def __len__(self) -> int:
        whole, rest = divmod(self._dim, self._block)
        return whole * self._part + (int(np.count_nonzero(self._inside(whole, whole + 1) < rest)) if rest else 0)

    def __iter__(self) -> Iterator[Index]:
        dim, block = self._dim, self._block
        if block == 1:
            for low in range(0, dim, _PIECE):
                yield slice(low, min(dim, low + _PIECE))
            return
        blocks, step = -(-dim // block), max(1, _PIECE // self._part)
        for first in range(0, blocks, step):
            behind = min(blocks, first + step)
            coordinates = np.arange(first * block, behind * block, block, dtype=np.int64)[:, None]
            coordinates = (coordinates + self._inside(first, behind)).reshape(-1)
            yield coordinates[coordinates < dim] if behind == blocks else coordinates

    def _inside(self, first: int, behind: int) -> NDArray[np.uint32]:
        """Return where the slice lies in some blocks: (blocks, a), increasing in each."""
        offsets = _offsets(self._seed, -(-self._dim // self._block), self._block)[first:behind]
        shifts = (np.arange(self._part, dtype=np.uint32) + np.uint32(self._shift)) % np.uint32(self._block)
        inside = offsets[:, None] + shifts[None, :]  # Below 2L: what is beyond L wraps around once.
        np.minimum(inside, inside - np.uint32(self._block), out=inside)  # Below zero it would be huge.
        if self._part > 1:
            inside.sort(axis=1)
        return inside


class SlicedSum(MaskedSum):
    """Every mask covers all that a user sends. Works piece by piece, so that memory stays at the upload's size."""

    def __init__(self, pattern: Sliced, group: int, context: bytes, where: _Slice) -> None:
        super().__init__(pattern, group, context)
        self._where = where
        self._length = len(where)
        self._uploads: dict[int, Packed] = {}

    def indices(self) -> Iterable[Index]:
        return self._where

    def mask(
        self,
        update: UpdateSource,
        steps: Sequence[Step],
        weight: int,
        pairs: Sequence[Pair],
        private: Mask,
        trace: Trace | None = None,
    ) -> MaskedUpdate:
        """Return the masked words of the slice, the private integers behind them."""
        word = self.layout.word
        words = np.empty(self._length + self.digits.total, word.dtype)
        masks = WholeMasks([*self._masks_of(pairs, leaving=False), private], word, len(words))
        # Small pieces are masked several at a time: a mask costs as much for each piece as for a few thousand words.
        sums = np.empty(min(len(words), masks.step), word.accumulator)
        done = filled = 0
        for integers in self._integers(update, steps, weight, trace):
            start = 0
            while start < len(integers):
                some = integers[start : start + len(sums) - filled]
                sums[filled : filled + len(some)] = some  # As `word.embed` does, without a copy.
                start, filled = start + len(some), filled + len(some)
                if filled == len(sums) or done + filled == len(words):
                    masks.add(sums[:filled])
                    words[done : done + filled] = word.reduce(sums[:filled])
                    done, filled = done + filled, 0
        return MaskedUpdate(b"", words, sum(step.clipped for step in steps))

    def _integers(
        self, update: UpdateSource, steps: Sequence[Step], weight: int, trace: Trace | None
    ) -> Iterator[NDArray[Any]]:
        """Yield the integers of the slice piece by piece, then the digits of what travels beside them."""
        for number, step in enumerate(steps):
            step.begin(partial(self._pieces, update, steps[:number]))
        yield from self._pieces(update, steps, trace)
        clipped = min(self._length, sum(step.clipped for step in steps)) if self.layout.counts else 0
        yield self.digits.write((weight if self.layout.max_weight else 0, clipped))

    def _pieces(
        self, update: UpdateSource, steps: Sequence[Step], trace: Trace | None = None
    ) -> Iterator[NDArray[Any]]:
        """Yield the pieces as they are after some steps."""
        for index in self._where:
            piece: NDArray[Any]
            piece = update.read(index.start, index.stop) if isinstance(index, slice) else update.take(index)
            for step in steps:
                piece = step.apply(piece)
            if trace:
                trace(index, piece)
            yield piece

    def add(self, user: int, locations: bytes, words: Packed, keep: Keep = as_it_is) -> None:
        if locations:
            raise MalformedMessage("the pattern has public locations, none may be sent")
        unpacked = unpack(words, self._length + self.digits.total, self.layout.word)
        self._uploads[user] = keep(user, words)  # First: a disk may be full.
        np.add(self._sums, unpacked, out=self._sums)

    def remove(self, user: int) -> None:
        words = unpack(self._uploads.pop(user), self._length + self.digits.total, self.layout.word)
        np.subtract(self._sums, words, out=self._sums)

    def open(self, private: Mapping[int, SharedSecret], orphaned: Sequence[Pair], threads: int = 1) -> None:
        if not self._uploads:
            raise MalformedMessage("nobody has uploaded anything")
        masks = self.private_masks(private, positive=False)
        # The user in the sum added the mask if its number is the smaller one; now it is taken away.
        masks += self._masks_of(orphaned, leaving=True)
        add_whole(self._sums, masks, self.layout.word, threads)

    def problem(self) -> str:
        """Compare the sum with what honest users can reach: weights within the limit, means within the clip."""
        layout, count = self.layout, len(self._uploads)
        (weight, clipped), values = self._beside, self._values
        if weight > count * max(1, layout.max_weight) or clipped > count * self._length:
            return "its users sent weights or counts above what is allowed"
        share = weight / layout.max_weight if layout.max_weight else count
        largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
        # Each contribution is rounded by less than one.
        return "its users sent values beyond the clip" if largest > layout.limit * share + count else ""

    def result(self) -> GroupSum:
        weight, clipped = self._beside
        return GroupSum(
            group=self.group,
            users=tuple(sorted(self._uploads)),
            indices=self._where,
            values=self._values,
            contributors=None,
            weight=weight if self.layout.max_weight else None,
            clipped=clipped if self.layout.counts else None,
        )

    @cached_property
    def _sums(self) -> NDArray[Any]:
        """What was added so far; a client, which adds nothing, has none."""
        return self.layout.word.zeros((self._length + self.digits.total,))

    @cached_property
    def _values(self) -> NDArray[np.signedinteger[Any]]:
        return self.layout.word.lift_short(self._sums[: self._length])

    @property
    def _beside(self) -> tuple[int, ...]:
        """Weight and clipped values, which are not negative: no lifting."""
        return self.digits.read(self.layout.word.reduce(self._sums[self._length :]).tolist())

    def _masks_of(self, pairs: Sequence[Pair], leaving: bool) -> list[Mask]:
        """Return the masks of pairs as the first user adds them, or as they are taken away."""
        seeds, word = mask_seeds(pairs, self.context), self.layout.word
        return [
            Mask(MaskStream(seed, word), (pair.user < pair.peer) is not leaving)
            for pair, seed in zip(pairs, seeds, strict=True)
        ]


class Full(Sliced):
    """SecAgg: everybody sends everything."""

    name = "full"
    several_groups = False
    sparse = False
    short_words = False

    def __init__(self, layout: Layout) -> None:
        if layout.alpha_q32 != 1 << 32:
            raise InvalidInput("alpha", f"must be 1 with full, which sends everything, got {layout.alpha:g}")
        super().__init__(layout)
