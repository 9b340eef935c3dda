"""The Bernoulli pattern b_ij by its gaps: drawn with work proportional to the ones, and coded for the wire.

Between two ones of a Bernoulli(π) sequence lie geometrically many zeros. A 64-bit draw u gives the gap by inversion:
the number of entries < u in the table of 2^64·(1 − (1−π)^(k+1)) − 1, k = 0 … size−1. A draw beyond the table means "no
one among the next `size` coordinates"; the geometric law has no memory, so the walk simply continues from there. The
table is computed with integers, hence every machine gets the same pattern, bit for bit.

Which coordinates an upload carries travels in the smaller of two codes: a bitmap, or Rice-coded gaps, which take close
to the entropy. The quotients in unary and the remainders are streams of their own (docs/protocol.md has the bytes),
which lets NumPy write and read them without a loop.
"""

from __future__ import annotations

import struct
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
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.field import number_type, pack_numbers, unpack_numbers

ONE = 1 << 64
"""Probabilities are integers in units of 2^−64."""

_LARGEST_TABLE = 1 << 16
_GUIDE_BITS = 16
_BATCH_DRAWS = 1 << 15
"""Draws worked on at a time: 256 kB, so that several passes over them stay in the second-level cache."""

_BITMAP, _GAPS = b"\x00", b"\x01"
_HEADER = 10
_LARGEST_K = 32

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


def encode_locations(positions: Positions, dim: int) -> bytes:
    """Code strictly increasing positions below `dim`."""
    bitmap_size = 1 + (dim + 7) // 8
    count = len(positions)
    k = _best_k(count, int(positions[-1]) + 1 - count if count else 0)
    gaps = _steps(positions.astype(_shorter(dim), copy=False))
    gaps -= 1
    ends = gaps >> k  # A quotient ends behind the zeros and the ones of all before it.
    ends[1:] += 1
    ends = np.cumsum(ends, dtype=np.int64)  # NumPy writes to places of 64 bits three times as fast as of 32.
    unary_bits = int(ends[-1]) + 1 if count else 0
    unary_size, low_size = (unary_bits + 7) // 8, (count * k + 7) // 8
    if _HEADER + unary_size + low_size >= bitmap_size:
        return _BITMAP + _bits_at(positions, dim)
    lengths = struct.pack("<BII", k, count, unary_size)
    return b"".join([_GAPS, lengths, _bits_at(ends, unary_bits), _low_bits(gaps, k)])


def decode_locations(data: bytes, dim: int) -> NDArray[np.int64]:
    """Read what `encode_locations` wrote; refuse everything else."""
    return np.cumsum(decode_steps(data, dim), dtype=np.int64) - 1


def decode_steps(data: bytes, dim: int) -> Positions:
    """Read locations as steps from one to the next, the first from −1; refuse what `encode_locations` did not write."""
    if len(data) > 1 + (dim + 7) // 8:  # The smaller code was chosen, so more than a bitmap never comes.
        raise MalformedMessage(f"locations of {dim} coordinates take at most {1 + (dim + 7) // 8} bytes")
    if data[:1] == _BITMAP:
        if len(data) != 1 + (dim + 7) // 8:
            raise MalformedMessage(f"a bitmap of {dim} coordinates takes {1 + (dim + 7) // 8} bytes, not {len(data)}")
        steps = _steps(_read_bits(data[1:]).astype(_shorter(dim)))
    elif data[:1] == _GAPS and len(data) >= _HEADER:
        steps = _decode_gaps(data, dim)
    else:
        raise MalformedMessage("the locations are in no known code")
    if int(steps.sum(dtype=np.int64)) > dim:
        raise MalformedMessage(f"a location is not below {dim}")
    return steps


def _decode_gaps(data: bytes, dim: int) -> Positions:
    k, count, unary_size = struct.unpack_from("<BII", data, 1)
    low_size = (count * k + 7) // 8
    if k > _LARGEST_K or len(data) != _HEADER + unary_size + low_size:
        raise MalformedMessage("the lengths of the coded gaps do not fit")
    ends = _read_bits(data[_HEADER : _HEADER + unary_size])
    if len(ends) != count or unary_size != ((int(ends[-1]) + 8) // 8 if count else 0):
        raise MalformedMessage("the number of coded gaps does not fit")
    # Without the ones, the last end is the sum of the quotients: below dim ≤ 2^40, so that no sum below overflows.
    if count and (int(ends[-1]) + 1 - count) << k >= dim:
        raise MalformedMessage(f"a location is not below {dim}")
    # A step is a gap and one: (quotient << k) + low + 1, and an end lies quotient + 1 behind the one before.
    steps = _steps(ends.astype(_shorter(dim) if k <= 16 else np.int64))
    if k:
        steps -= 1
        steps <<= k
        steps += unpack_numbers(data[_HEADER + unary_size :], count, k)
        steps += 1
    return steps


def _shorter(dim: int) -> type[np.signedinteger[Any]]:
    """Return the type that steps up to `dim` are computed in, with room for 16 low bits that lead beyond."""
    return np.int32 if dim <= 1 << 30 else np.int64  # Each pass over 32 bits takes a third of the time.


def _steps(increasing: Positions) -> Positions:
    """Return the differences of numbers ≥ 0, the first from −1."""
    steps = np.empty_like(increasing)
    steps[:1] = increasing[:1] + 1
    np.subtract(increasing[1:], increasing[:-1], out=steps[1:])
    return steps


def _low_bits(gaps: Positions, k: int) -> bytes:
    """Write the k low bits of each gap, one gap behind the other."""
    if not k:
        return b""
    low = gaps.astype(number_type(k))  # k < 32
    low &= low.dtype.type((1 << k) - 1)
    return bytes(pack_numbers(low, k))


def _best_k(count: int, zeros: int) -> int:
    """Return the Rice parameter for `count` gaps that add up to `zeros`: the k that minimises the expected length."""
    if not count:
        return 0
    # A gap costs k + 1 bits and, on average, a little less than mean / 2^k for its quotient.
    return min(
        range(_LARGEST_K),
        key=lambda k: count * (k + 1) + max(0, zeros - count * ((1 << k) - 1) // 2) // (1 << k),
    )


def _bits_at(positions: Positions, size: int) -> bytes:
    bits = np.zeros(size, np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _read_bits(data: bytes) -> NDArray[np.int64]:
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    return np.flatnonzero(bits.view(np.bool_))  # NumPy searches booleans several times faster than numbers.
