"""The Bernoulli pattern b_ij by its gaps: work proportional to the ones, integers only.

Between two ones of a Bernoulli(π) sequence lie geometrically many zeros. A 64-bit draw u gives the gap by inversion:
the number of entries < u in the table of 2^64·(1 − (1−π)^(k+1)) − 1, k = 0 … size−1. A draw beyond the table means "no
one among the next `size` coordinates"; the geometric law has no memory, so the walk simply continues from there. The
table is computed with integers, hence every machine gets the same pattern, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.crypto.stream import KeyStream, read_side_by_side

ONE = 1 << 64
"""Probabilities are integers in units of 2^−64."""

_LARGEST_TABLE = 1 << 16
_GUIDE_BITS = 16
_BATCH_DRAWS = 1 << 15
"""Draws worked on at a time: 256 kB, so that several passes over them stay in the second-level cache."""

Positions = NDArray[np.signedinteger[Any]]
"""Of 32 bits where they fit: half the memory, and twice the speed of all that is done with them."""


def table_size(probability: int) -> int:
    """Return the length of the gap table: four mean gaps (so 2 % of draws are skips), at most 2^16."""
    return min(4 * ONE // probability + 1, _LARGEST_TABLE)


@dataclass(frozen=True)
class GapTable:
    """The inverse of the gap distribution, with a guide that answers most draws by one look-up."""

    cumulative: NDArray[np.uint64]
    guide: NDArray[np.int32]
    """By a draw's highest bits: g + 1, the way to a one behind g zeros; or −1 − g where draws with these bits have the
    gap g or a longer one, or are skips."""
    one_longer: bool
    """The longer gap is never more than one longer."""

    @staticmethod
    @lru_cache(maxsize=64)
    def of(probability: int) -> GapTable:
        """Return the table for π = probability / 2^64, with 0 < π < 1."""
        cumulative = np.empty(table_size(probability), np.uint64)
        none = ONE  # (1 − π)^k in units of 2^−64, rounded down
        for k in range(len(cumulative)):
            none = none * (ONE - probability) >> 64
            cumulative[k] = ONE - none - 1
        edges = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
        first = np.searchsorted(cumulative, edges, side="left")
        last = np.searchsorted(cumulative, edges + np.uint64((1 << (64 - _GUIDE_BITS)) - 1), side="left")
        sure = (first == last) & (first < len(cumulative))
        guide = np.where(sure, first + 1, -1 - first).astype(np.int32)
        return GapTable(cumulative, guide, int((last - first).max()) <= 1)

    def walk(self, draws: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return how far each draw goes, and which of them are skips: all others end at a one.

        A one is reached behind as many zeros as table entries are < the draw; a skip passes over as many coordinates
        as the table has entries.
        """
        highest = (draws >> np.uint64(64 - _GUIDE_BITS)).view(np.int64)
        steps: NDArray[np.int32] = self.guide.take(highest, mode="clip")  # All are within; to look takes half the time.
        unsure = np.flatnonzero(steps < 0)
        gaps: NDArray[np.signedinteger[Any]]
        if self.one_longer:
            gaps = ~steps[unsure]  # −1 − g, undone
            # No draw is beyond the table twice: a gap that is as long as the table stays as it is.
            gaps += self.cumulative.take(gaps, mode="clip") < draws[unsure]
            np.minimum(gaps, len(self.cumulative), out=gaps)
        else:
            gaps = np.searchsorted(self.cumulative, draws[unsure], side="left")
        # A one goes as far as its gap and itself, a skip as far as its gap.
        steps[unsure] = np.minimum(gaps + 1, len(self.cumulative))
        return steps, unsure[gaps == len(self.cumulative)]


def bernoulli_positions(seeds: Sequence[PatternSeed], dim: int, probability: int) -> list[Positions]:
    """Return, for each seed, the sorted positions of the ones among `dim` independent Bernoulli(π) bits."""
    mean = dim * probability >> 64
    # A guess at the draws needed; it changes speed, not the result.
    first_read = mean + mean // 32 + 4 * isqrt(mean) + 8
    batch = max(1, _BATCH_DRAWS // first_read)
    found: list[Positions] = []
    for start in range(0, len(seeds), batch):
        found += _walk([KeyStream(seed) for seed in seeds[start : start + batch]], first_read, dim, probability)
    return found


def _walk(streams: list[KeyStream], reads: int, dim: int, probability: int) -> list[Positions]:
    """Walk along the coordinates, one row of draws per stream."""
    table = GapTable.of(probability)
    draws = read_side_by_side(streams, [8 * reads] * len(streams)).view("<u8")
    steps, skips = table.walk(draws)
    steps = steps.reshape(len(streams), reads)
    steps[:, 0] -= 1  # From the coordinate before the first.
    short = reads * len(table.cumulative) < 1 << 31  # Half the memory, if no walk can leave 32 bits.
    ends: NDArray[np.signedinteger[Any]] = np.cumsum(steps, axis=1, dtype=np.int32 if short else np.int64)
    is_one = ends < dim
    is_one.reshape(-1)[skips] = False
    kind: type[np.signedinteger[Any]] = np.int32 if dim <= 1 << 31 else np.int64
    ones = ends[is_one].astype(kind, copy=False)
    behind = accumulate(np.count_nonzero(is_one, axis=1).tolist(), initial=0)
    result = [ones[start:stop] for start, stop in pairwise(behind)]
    for index in np.flatnonzero(ends[:, -1] < dim - 1).tolist():
        # The guess was short: continue where the stream stopped.
        reached = int(ends[index, -1]) + 1
        # Twice as many draws each time: a tiny π over a huge model is reached in few steps.
        rest = _walk([streams[index]], 2 * reads, dim - reached, probability)[0]
        result[index] = np.concatenate([result[index], rest.astype(ones.dtype) + ones.dtype.type(reached)])
    return result
