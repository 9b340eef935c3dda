"""What a pattern is: who sends what, who masks with whom. Client and server know a pattern through this alone.

A `Pattern` belongs to a run, a `MaskedSum` to one group in one round: a client masks one update with it, a server adds
up all of them, takes the masks away that are left, and has a `GroupSum`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.field import Word
from sparsesecagg.patterns.masks import Mask, Pair, private_mask_seeds
from sparsesecagg.rounding import Digits, Floats, Quantizer, Step

Index = slice | NDArray[np.int64]
"""Coordinates of the model, increasing."""

Trace = Callable[[Index, NDArray[Any]], None]
"""Told the coordinates and their integers, before masking. For simulations and tests."""


class UpdateSource(Protocol):
    """Where a user's update is read from; only the coordinates that it sends are asked for."""

    dim: int

    def read(self, start: int, stop: int) -> Floats:
        """Return the coordinates from start to stop."""

    def take(self, coordinates: NDArray[np.int64]) -> Floats:
        """Return some coordinates, in increasing order."""


class ArrayUpdate:
    """An update that lies in memory."""

    def __init__(self, values: Floats) -> None:
        self._values = values
        self.dim = len(values)

    def read(self, start: int, stop: int) -> Floats:
        return self._values[start:stop]

    def take(self, coordinates: NDArray[np.int64]) -> Floats:
        return self._values.take(coordinates)


Update = Floats | UpdateSource

Packed = bytes | memoryview
Keep = Callable[[int, Packed], Packed]
"""Returns the same words of a user, from wherever they are kept."""


def as_it_is(_: int, words: Packed) -> Packed:
    """Keep words in memory."""
    return words


class Layout(msgspec.Struct, frozen=True, array_like=True, dict=True, forbid_unknown_fields=True):
    """What a pattern is made from: the part of a run's parameters that decides what travels.

    `protocol/parameters.py` has the rest; the order of the fields is that of the wire.
    """

    version: int
    clients: int
    dim: int
    pattern: str
    alpha_q32: int
    """The α that was asked for, in units of 2^−32."""
    groups: int
    slices: int
    """Different slices that the groups send in a round: 1 if all send the same, up to one for each group."""
    modulus_bits: int
    neighbours: int
    """Degree of share graph and mask graph; 0 means complete."""
    threshold: int
    """t: shares that open a secret, and survivors that open a sum."""
    clip: float
    max_weight: int
    """0: all weights are one. Otherwise weights are private integers up to this."""
    clip_norm: float
    """The largest 2-norm of an update under differential privacy; 0 without."""

    @property
    def alpha(self) -> float:
        """The α that was asked for."""
        return self.alpha_q32 / 2**32

    @property
    def contributors(self) -> int:
        """The most users that may be in one opened sum: the size of the largest group."""
        return -(-self.clients // self.groups)

    @property
    def word(self) -> Word:
        """The word that values travel in."""
        return Word.of(self.modulus_bits)

    @cached_property
    def quantizer(self) -> Quantizer:
        """The rounding that all users share."""
        return Quantizer.fit(self.word, self.contributors, self.clip)

    @property
    def counts(self) -> bool:
        """Whether the number of clipped values travels beside the values; not under differential privacy."""
        return not self.clip_norm

    @property
    def limit(self) -> int:
        """The largest magnitude of one user's integers."""
        return self.quantizer.limit if self.counts else self.word.largest


@dataclass(frozen=True)
class MaskedUpdate:
    """The content of an upload."""

    locations: bytes
    words: NDArray[Any]
    clipped: int


@dataclass(frozen=True)
class GroupSum:
    """The opened sum of one group."""

    group: int
    users: tuple[int, ...]
    """Whose updates are in it."""
    indices: Iterable[Index]
    """Where the values belong, piece by piece."""
    values: NDArray[np.signedinteger[Any]]
    contributors: NDArray[np.unsignedinteger[Any]] | None
    """How many users are in each value; None if all of `users` are in all of them."""
    weight: int | None
    """The sum of their private weights; None in a run without weights."""
    clipped: int | None
    """Values that they clipped together; None if the pattern can't count them privately."""

    def pieces(self) -> Iterator[tuple[Index, NDArray[np.signedinteger[Any]], Any]]:
        """Yield coordinates, their values, and how many users are in each."""
        start = 0
        for index in self.indices:
            size = index.stop - index.start if isinstance(index, slice) else len(index)
            part = slice(start, start + size)
            yield index, self.values[part], len(self.users) if self.contributors is None else self.contributors[part]
            start += size


class Pattern(ABC):
    """A pattern in a run."""

    name: ClassVar[str]
    protects: ClassVar[bool] = True
    """Every value that is opened is a sum over the whole group."""
    several_groups: ClassVar[bool] = True
    """A cohort may be cut into groups."""
    sparse: ClassVar[bool] = True
    """α may be below 1."""
    short_words: ClassVar[bool] = False
    """Where nobody says otherwise, words are as short as the groups allow; else of 32 bits, as published."""

    def __init__(self, layout: Layout) -> None:
        """Raise `InvalidInput` for a layout that the pattern can't have."""
        self.layout = layout
        _ = layout.limit  # Raises if the word is too short.

    @property
    @abstractmethod
    def digits(self) -> Digits:
        """Private integers beside the values of an upload: the weight, and how many values were clipped."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Coordinates of an upload, at most."""

    @abstractmethod
    def fraction(self, members: int | None = None) -> float:
        """Return the probability that a user sends a given coordinate in a round (p in the paper): the α in use.

        `members` is how many users of its group take part; all by default.
        """

    @property
    @abstractmethod
    def coverage(self) -> float:
        """The fraction of the coordinates that somebody sends in a round, about (κ)."""

    @property
    def copies(self) -> int:
        """How many copies of a value must stand in a row for at least one of them to be sent in every round."""
        return 1

    @abstractmethod
    def default_threshold(self, sizes: tuple[int, ...], dropout: float, colluding: float) -> int:
        """Return the threshold where nobody says otherwise."""

    def turns(self, seed: bytes) -> NDArray[np.int32] | None:
        """Return a number for each coordinate: equal ones are sent together, neighbours in neighbouring rounds.

        None where every round may change everything. `seed` is the epoch's.
        """
        return None

    @abstractmethod
    def upload_size(self) -> int:
        """Return the bytes of locations and words in an upload, or their expected number."""

    @abstractmethod
    def masked_sum(self, group: int, round_number: int, seed: bytes, context: bytes) -> MaskedSum:
        """Return the sum of a group in a round. `seed` is the epoch's, `context` the digest of the round's header."""


class MaskedSum(ABC):
    """One group in one round: a client masks one update, a server adds up all of them."""

    def __init__(self, pattern: Pattern, group: int, context: bytes) -> None:
        self.layout = pattern.layout
        self.digits = pattern.digits
        self.group = group
        self.context = context

    @abstractmethod
    def indices(self) -> Iterable[Index]:
        """Yield, piece by piece, the coordinates that the group may send."""

    @abstractmethod
    def mask(
        self,
        update: UpdateSource,
        steps: Sequence[Step],
        weight: int,
        pairs: Sequence[Pair],
        private: Mask,
        trace: Trace | None = None,
    ) -> MaskedUpdate:
        """Return what a user sends: select, then the steps, then mask.

        x_i(ℓ) = ȳ_i(ℓ) + r_i(ℓ) + Σ_{j > i} r_ij(ℓ) − Σ_{j < i} r_ij(ℓ) over the coordinates that user i sends.
        """

    @abstractmethod
    def add(self, user: int, locations: bytes, words: Packed, keep: Keep = as_it_is) -> None:
        """Take one upload; a malformed one raises and changes nothing. `keep` says where its words stay."""

    @abstractmethod
    def remove(self, user: int) -> None:
        """Take an upload out again."""

    @abstractmethod
    def open(self, private: Mapping[int, SharedSecret], orphaned: Sequence[Pair], threads: int = 1) -> None:
        """Take away the masks that are left: the private ones of those in the sum, and those shared with the others.

        `private` has the private seed of every user in the sum; `orphaned` the pairs of one (`user`) and a member that
        is not in it (`peer`).
        """

    def problem(self) -> str:
        """Return why the opened sum is outside the range of honest inputs; empty if it is not."""
        return ""

    @abstractmethod
    def result(self) -> GroupSum:
        """Return the opened sum."""

    def private_mask(self, user: int, seed: SharedSecret, positive: bool) -> Mask:
        """Return a user's private mask."""
        return self.private_masks({user: seed}, positive)[0]

    def private_masks(self, seeds: Mapping[int, SharedSecret], positive: bool) -> list[Mask]:
        """Return the private masks of users."""
        word = self.layout.word
        return [Mask(MaskStream(seed, word), positive) for seed in private_mask_seeds(seeds, self.context)]
