"""What one committee does in one round, and the total that it goes into.

Client and server know a pattern through this interface alone: `Sliced` (committee, full) and `Drawn` (pairwise) say
what a user masks and sends, how uploads are added, and how the masks that are left in their sum are taken away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import AgreedSecret, SharedSecret
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.protocol.masking import Mask, pair_seeds, private_mask_seed
from sparsesecagg.protocol.messages import Upload
from sparsesecagg.protocol.parameters import Parameters

Floats = NDArray[np.floating[Any]]


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
        """Return a stretch of the array."""
        return self._values[start:stop]

    def take(self, coordinates: NDArray[np.int64]) -> Floats:
        """Return some of its values."""
        return self._values.take(coordinates)


Update = Floats | UpdateSource

Trace = Callable[[slice | NDArray[np.int64], NDArray[Any]], None]
"""Told the coordinates and their quantised integers, before masking. For simulations and tests."""


class Pair(NamedTuple):
    """Two users that share a mask, and what their mask keys agree on."""

    user: int
    peer: int
    agreed: AgreedSecret


@dataclass(frozen=True)
class MaskedUpdate:
    """The content of an upload."""

    locations: bytes
    words: NDArray[Any]
    clipped: int


class Total:
    """The sum over all opened committees, exact, and who is in it."""

    def __init__(self, params: Parameters) -> None:
        # As short as the sum of `served` committees allows: fresh memory costs a server more than to add.
        largest = params.served * (params.word.largest + 1)
        self.values: NDArray[np.signedinteger[Any]] = np.zeros(params.dim, np.min_scalar_type(-largest))
        self.contributors = np.zeros(params.slices.count, np.min_scalar_type(params.clients))
        """By slice (by coordinate in `pairwise`): how many users are in the sum."""
        self.weights = np.zeros(params.slices.count if params.max_weight else 0, np.int64)
        """By slice: the sum of their private weights."""
        self.clipped = 0
        self.lock = Lock()
        """For committees that are opened in several threads."""


class Work(ABC):
    """One committee in one round: a client masks one update, a server adds up all of them."""

    def __init__(self, params: Parameters, committee: int, round_number: int, context: bytes) -> None:
        """`context` is the order's digest."""
        self.params = params
        self.committee = committee
        self.round_number = round_number
        self.context = context

    @abstractmethod
    def mask(
        self,
        update: UpdateSource,
        weight: int,
        pairs: Sequence[Pair],
        private: Mask,
        rng: np.random.Generator,
        trace: Trace | None = None,
    ) -> MaskedUpdate:
        """Return what a user sends: select, quantise, mask. `rng` rounds; it needs no secrecy.

        x_i(ℓ) = ȳ_i(ℓ) + r_i(ℓ) + Σ_{j > i} r_ij(ℓ) − Σ_{j < i} r_ij(ℓ) over the coordinates that user i sends.
        """

    @abstractmethod
    def add(self, upload: Upload) -> None:
        """Add one upload to the committee's sum; a malformed one raises and changes nothing."""

    @abstractmethod
    def open(self, private: Mapping[int, SharedSecret], orphaned: Sequence[Pair]) -> None:
        """Take away the masks that are left: the survivors' private ones, and those shared with the dropped.

        `private` has the private seed of every survivor; `orphaned` the pairs of a survivor (`user`) and a user that
        dropped out (`peer`).
        """

    def problem(self) -> str:
        """Return what shows that some user did not send what users may send; empty if nothing does."""
        return ""

    @abstractmethod
    def add_to(self, total: Total) -> None:
        """Add the opened sum to the total."""

    @property
    def coordinates(self) -> int:
        """How many coordinates the committee sends."""
        return self.params.dim

    def private_mask(self, user: int, seed: SharedSecret, positive: bool) -> Mask:
        """Return a user's private mask."""
        return Mask(MaskStream(private_mask_seed(seed, self.context, user), self.params.word), positive)

    def factor(self, weight: int) -> float:
        """Return what the weight puts on an update: a fraction of the largest weight."""
        return weight / self.params.max_weight if self.params.max_weight else 1.0

    def seeds(self, pair: Pair) -> tuple[Any, Any]:
        """Return the seeds of a pair's mask and pattern."""
        return pair_seeds(pair.agreed, self.context, pair.user, pair.peer)
