"""`committee` and `full`: a committee sends whole slices, and every mask covers all that it sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.crypto.stream import CHUNK_BYTES, MaskStream
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.field import unpack
from sparsesecagg.protocol.masking import Mask, WholeMasks
from sparsesecagg.protocol.messages import Upload
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.work import MaskedUpdate, Pair, Total, Trace, UpdateSource, Work

_PIECE = 1 << 16
"""Coordinates quantised at a time: their floats and random numbers stay in the cache."""


class Sliced(Work):
    """Quantises and masks piece by piece, so that memory stays at the size of the upload."""

    def __init__(self, params: Parameters, committee: int, round_number: int, context: bytes) -> None:
        super().__init__(params, committee, round_number, context)
        self.numbers = params.slices.of(committee, round_number)
        self._sums: NDArray[Any] | None = None
        self._lifted: NDArray[np.signedinteger[Any]] | None = None
        self._count = 0

    @property
    def coordinates(self) -> int:
        """Return the coordinates of the committee's slices, padding left out."""
        return sum(stop - start for start, stop in map(self.params.slices.bounds, self.numbers))

    def mask(
        self,
        update: UpdateSource,
        weight: int,
        pairs: Sequence[Pair],
        private: Mask,
        rng: np.random.Generator,
        trace: Trace | None = None,
    ) -> MaskedUpdate:
        """Return the masked words of all slices, one slice of `width` words behind the other."""
        params, word = self.params, self.params.word
        masks = WholeMasks([*(self._mask_of(pair, pair.user < pair.peer) for pair in pairs), private], word)
        words = np.empty(len(self.numbers) * params.width, word.dtype)
        # Small slices are masked several at a time: a mask costs as much for each piece as for a few thousand words.
        sums = np.empty(min(len(words), CHUNK_BYTES // word.dtype.itemsize), word.accumulator)
        total = done = filled = 0
        for integers, clipped in self._quantised(update, weight, rng, trace):
            total += clipped
            start = 0
            while start < len(integers):
                some = integers[start : start + len(sums) - filled]
                sums[filled : filled + len(some)] = some  # As `word.embed` does, without a copy.
                start, filled = start + len(some), filled + len(some)
                if filled == len(sums) or done + filled == len(words):
                    masks.add(sums[:filled])
                    words[done : done + filled] = word.reduce(sums[:filled])
                    done, filled = done + filled, 0
        return MaskedUpdate(b"", words, total)

    def _quantised(
        self, update: UpdateSource, weight: int, rng: np.random.Generator, trace: Trace | None
    ) -> Iterator[tuple[NDArray[Any], int]]:
        """Yield the integers of all slices piece by piece, each with the number of values that were clipped in it."""
        params = self.params
        for number in self.numbers:
            first, behind = params.slices.bounds(number)
            clipped = 0
            for low in range(first, behind, _PIECE):
                high = min(behind, low + _PIECE)
                integers, beyond = params.quantizer.quantize(update.read(low, high), self.factor(weight), rng)
                if trace:
                    trace(slice(low, high), integers)
                clipped += beyond
                yield integers, beyond
            # Padding, and the private integers of the slice.
            digits = params.digits.write((weight if params.max_weight else 0, clipped))
            missing = params.slices.length - (behind - first)
            yield np.concatenate([np.zeros(missing, digits.dtype), digits]), 0

    def add(self, upload: Upload) -> None:
        """Add one upload's words."""
        if upload.locations:
            raise MalformedMessage(f"{self.params.pattern} has public locations, none may be sent")
        words = unpack(upload.words, len(self.numbers) * self.params.width, self.params.word)
        if self._sums is None:
            self._sums = words.astype(self.params.word.accumulator)
        else:
            np.add(self._sums, words, out=self._sums)
        self._count += 1

    def open(self, private: Mapping[int, SharedSecret], orphaned: Sequence[Pair]) -> None:
        """Take away the masks that are left in the sum."""
        assert self._sums is not None  # noqa: S101  # A committee is opened only if users have uploaded.
        masks = [self.private_mask(user, seed, positive=False) for user, seed in private.items()]
        # The survivor added its mask if its number is the smaller one; now it is taken away.
        masks += [self._mask_of(pair, pair.user > pair.peer) for pair in orphaned]
        WholeMasks(masks, self.params.word).add(self._sums)

    def problem(self) -> str:
        """Compare sums with what honest users can reach: weights within the limit, means within the clip."""
        params = self.params
        for values, (weight, clipped) in zip(*self._opened(), strict=True):
            if weight > self._count * max(1, params.max_weight) or clipped > self._count * params.slices.length:
                return "its users sent weights or counts that none may have"
            share = weight / params.max_weight if params.max_weight else self._count
            largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
            # Each contribution is rounded by less than one.
            if largest > params.quantizer.limit * share + self._count:
                return "its users sent values beyond the clip"
        return ""

    def add_to(self, total: Total) -> None:
        """Add the values of each slice, and its private integers, to the total."""
        for number, values, (weight, clipped) in zip(self.numbers, *self._opened(), strict=True):
            start, stop = self.params.slices.bounds(number)
            total.values[start:stop] += values[: stop - start]
            total.contributors[number] += self._count
            total.clipped += clipped
            if self.params.max_weight:
                total.weights[number] += weight
        self._sums = self._lifted = None

    def _opened(self) -> tuple[NDArray[np.signedinteger[Any]], list[list[int]]]:
        """Return the signed values of each slice, and its private integers: weight and clipped values."""
        assert self._sums is not None  # noqa: S101
        params, word = self.params, self.params.word
        rows = self._sums.reshape(len(self.numbers), params.width)
        if self._lifted is None:
            self._lifted = word.lift_short(rows[:, : params.slices.length])
        digits = word.reduce(rows[:, params.slices.length :]).astype(np.int64)  # Not negative: no lifting.
        integers: list[list[int]] = params.digits.read(digits).tolist()
        return self._lifted, integers

    def _mask_of(self, pair: Pair, positive: bool) -> Mask:
        return Mask(MaskStream(self.seeds(pair)[0], self.params.word), positive)
