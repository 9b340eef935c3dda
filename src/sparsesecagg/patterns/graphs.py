"""Public randomness: permutations and k-regular graphs that everybody derives alike from a public seed.

Integers only. A permutation sorts the users by 64-bit draws; a k-regular graph joins each user to the k/2 before and
the k/2 behind it on a randomly permuted circle (a Harary graph, as in SecAgg+, Bell et al. 2020).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.kdf import derive
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.crypto.stream import KeyStream

Users = NDArray[np.int64]
"""User numbers, distinct."""


class PublicSeed(Secret):
    """A seed that everybody knows; a `Secret` only in type, so that it can key a stream."""


def permutation(seed: bytes, label: str, users: Users) -> Users:
    """Return a random permutation of the users."""
    draws = KeyStream(PublicSeed(derive(seed, label, b""))).read(8 * len(users)).view("<u8")
    return users[np.argsort(draws, kind="stable")]


class CircleGraph:
    """Users on a circle, each joined to its `degree` (even) nearest; to all when there are no more."""

    def __init__(self, circle: Users, degree: int | None) -> None:
        self._circle = circle
        self._half = None if degree is None or degree >= len(circle) - 1 else degree // 2

    def neighbours(self, user: int) -> Users:
        """Return the user's neighbours, sorted."""
        if self._half is None:
            others: Users = self._sorted[self._sorted != user]
            return others
        steps = np.concatenate([np.arange(-self._half, 0), np.arange(1, self._half + 1)])
        around: Users = np.sort(self._circle[(self._place[user] + steps) % len(self._circle)])
        return around

    @cached_property
    def _sorted(self) -> Users:
        return np.sort(self._circle)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {user: place for place, user in enumerate(self._circle.tolist())}
