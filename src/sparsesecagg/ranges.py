"""How far a parameter may move in a round: one range for each array of a model, found under the masks, then followed.

Short words leave a user few steps between −range and range, so a range should be little wider than the values that
occur, and arrays differ by orders of magnitude: weights move by thousandths where the statistics of a normalisation
layer move by hundreds. Updates shrink while a model trains. What lies beyond the range is clipped and counted.

*Found.* Each user votes, for each array, for the smallest power of two that holds its own update: a one in one of 64
cells, zeros in the others. Votes are summed under the masks like any update, so the server learns how many users of a
group voted for which power, and nothing about any one of them.

*Followed.* From then on a range is a headroom times the largest magnitude in the array's last means, which the server
learns anyway. The first mean after a vote says how much wider single updates are than their mean, and that ratio is the
array's headroom. Where values were clipped, the arrays that may have lost them get more, up to what rounding allows: a
wider range is a coarser one, and means that are mostly rounding must not set the next range. A mean of zero comes from
a range that is too wide, or from an array that stands still, as a frozen layer does, and may move again later: its
range shrinks, but not to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp, isfinite
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparsesecagg.errors import MalformedMessage

CELLS = 64
_LOWEST = -32
"""The exponent of the first cell; the last one is 31."""
NARROWEST = 2.0**_LOWEST
"""What everybody votes for whose array has not moved."""
_TENTH, _OUTLIER = 0.1, 3
"""Votes of fewer than a tenth of the users widen a range by three powers of two at most: one user can't spoil it."""

MEMORY = 0.5
"""How much of an earlier round's size counts: a mean may come close to zero by chance, or be that of a small slice."""
FASTEST = 8.0
"""The factor by which a range changes in a round, at most, so that one odd round does not spoil the next."""
TOLERATED = 1e-3
"""The part of all values that may be clipped before headrooms grow: outliers of large arrays don't matter."""
MOST_HEADROOM, MOST_GROWN = 1024.0, 8.0
"""The most that is measured, and how many times the least one a headroom grows to where values are clipped.

Rounding alone moves the largest of a million means by a tenth of the range, with ten users and ten steps or so."""
_SMALLEST, _DEEPEST = 1e-12, 16.0
"""The narrowest range, and how far below the widest one the range of an array falls that stands still."""
_State = tuple[list[float], list[float], list[float], list[float]]


def vote(largest: Sequence[float]) -> NDArray[np.float32]:
    """Return one user's votes, shape (arrays · CELLS,), given the largest magnitude in each array of its update."""
    votes = np.zeros((len(largest), CELLS), np.float32)
    for row, size in zip(votes, largest, strict=True):
        mantissa, exponent = frexp(size if isfinite(size) else 0.0)  # size = mantissa · 2^exponent, 0.5 ≤ mantissa < 1
        needed = exponent - (mantissa == 0.5) if mantissa else _LOWEST  # A power of two holds itself.
        row[min(max(needed - _LOWEST, 0), CELLS - 1)] = 1
    return votes.reshape(-1)


def counted(shares: NDArray[np.floating[Any]]) -> list[float]:
    """Return the range of each array, given the part of the users that voted for each cell, shape (arrays · CELLS,)."""
    ranges = []
    for row in shares.reshape(-1, CELLS):
        above = np.cumsum(row[::-1])[::-1] - row
        most = int(np.flatnonzero(row > _TENTH / CELLS)[-1:].sum())  # The highest cell with a vote; 0 without any.
        nearly_all = int(np.flatnonzero(above <= 1.001 * _TENTH)[0])
        ranges.append(2.0 ** (min(most, nearly_all + _OUTLIER) + _LOWEST))
    return ranges


class Ranges:
    """The range of each array, from one round to the next."""

    def __init__(self, first: ArrayLike, headroom: ArrayLike, *, measured: bool = False) -> None:
        """Begin with `first`, one range for each array. `headroom` is the least, one or one for each array.

        `measured` says that `first` comes from votes, so the first mean decides on headrooms.
        """
        self.values: NDArray[np.float64] = np.array(first, np.float64).reshape(-1)
        self._seen = np.zeros_like(self.values)
        self._least = np.broadcast_to(np.asarray(headroom, np.float64), self.values.shape)
        self._headroom = np.full_like(self.values, np.nan) if measured else self._least.copy()

    @property
    def moved(self) -> bool:
        """Whether any array has moved so far."""
        return bool((self._seen > 0).any())

    def follow(self, largest: ArrayLike, known: ArrayLike = True, clipped: float = 0.0) -> None:
        """Adapt to a round, given the largest magnitude in each array of its mean, and the part of values clipped.

        `known` says for which arrays the round opened anything; the others keep their ranges.
        """
        now = np.asarray(largest, np.float64)
        known = np.asarray(known) & np.isfinite(now)
        self._seen = np.where(known, np.maximum(np.where(known, now, 0), MEMORY * self._seen), self._seen)
        new = known & (now > 0) & np.isnan(self._headroom)
        ratio = np.divide(self.values, self._seen, out=np.ones_like(self.values), where=new)
        self._headroom = np.where(new, np.clip(ratio, self._least, MOST_HEADROOM), self._headroom)
        growing = known & (self._headroom * self._seen > self.values)
        if clipped > TOLERATED and not growing.any():  # A range that grows anyway explains what was clipped.
            # Only the number is known. Suspects are arrays whose mean came near its range; without any, all are.
            near = known & (8 * self._seen > self.values)
            suspects = near if near.any() else known
            grown = np.minimum(2 * self._headroom, np.maximum(self._headroom, MOST_GROWN * self._least))
            self._headroom = np.where(suspects, grown, self._headroom)
        wanted = np.clip(self._headroom * self._seen, self.values / FASTEST, self.values * FASTEST)
        least = np.where(now == 0, np.minimum(self.values, self.values.max(initial=0) / _DEEPEST), _SMALLEST)
        # Until a voted array has moved, nobody knows its headroom, and the range that was voted for has to do.
        self.values = np.where(known & ~np.isnan(wanted), np.maximum(wanted, least), self.values)

    def save(self) -> bytes:
        """Return what the next ranges depend on."""
        state = self.values, self._seen, self._least, self._headroom
        return msgspec.msgpack.encode([each.tolist() for each in state])

    @staticmethod
    def restore(data: bytes) -> Ranges:
        """Return the ranges that `save` wrote; raises `MalformedMessage` for other bytes."""
        try:
            values, seen, least, headroom = np.array(msgspec.msgpack.decode(data, type=_State), np.float64)
        except ValueError:  # msgspec's errors are ValueErrors, and so are NumPy's of lists that differ in length.
            raise MalformedMessage("the bytes are not saved ranges") from None
        ranges = Ranges(values, least)
        ranges._seen, ranges._headroom = seen, headroom
        return ranges
