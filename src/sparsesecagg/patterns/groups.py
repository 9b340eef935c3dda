"""Groups: users that mask together and hold each other's shares. The server opens one sum per group.

Up to 128 users are one group. Larger cohorts are cut, once per epoch, by a random permutation that follows from a
public seed; sizes differ by one at most. Everything here is integers, so that all users compute the same groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.kdf import derive
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.errors import require

SMALLEST_GROUP = 3
LARGEST_SINGLE_GROUP = 128
"""Up to here nobody is drawn and nothing is left to chance: everybody is one group."""
USUAL_GROUP = 100
"""Users of a group, at most, in larger cohorts: key work and bytes of shares grow with it, anonymity too."""

Users = NDArray[np.int64]
"""User numbers, or indices of users in their group; distinct."""


class PublicSeed(Secret):
    """A seed that everybody knows; a `Secret` only in type, so that it can key a stream."""


def public_stream(seed: bytes, label: str) -> KeyStream:
    """Return the stream of public randomness that a label names."""
    return KeyStream(PublicSeed(derive(seed, label, b"")))


def group_count(clients: int, group_size: int | None) -> int:
    """Return how many groups a cohort is cut into, none of them larger than asked; by default of at most 100 users."""
    if group_size is None:
        return 1 if clients <= LARGEST_SINGLE_GROUP else -(-clients // USUAL_GROUP)
    possible = SMALLEST_GROUP <= group_size <= clients
    require("group_size", possible, f"must be from {SMALLEST_GROUP} to the {clients} clients, got {group_size}")
    count = -(-clients // group_size)
    small = clients // count
    fits = -(-clients // (clients // SMALLEST_GROUP))
    reason = f"of {group_size} leaves groups of {small} among {clients} clients: use at least {fits}"
    require("group_size", small >= SMALLEST_GROUP, reason)
    return count


@lru_cache(maxsize=64)
def group_sizes(clients: int, groups: int) -> tuple[int, ...]:
    """Return the sizes of the groups: cuts at ⌊i·N/K⌋, so that they differ by one at most."""
    cuts = [i * clients // groups for i in range(groups + 1)]
    return tuple(end - start for start, end in pairwise(cuts))


class CircleGraph:
    """Users on a circle, each joined to its `degree` (even) nearest; to all when there are no more.

    A k-regular graph joins each user to the k/2 before and the k/2 behind it on a randomly permuted circle: a Harary
    graph, as in SecAgg+ (Bell et al. 2020).
    """

    def __init__(self, circle: Users, degree: int | None) -> None:
        self._circle, self._sorted = circle, np.sort(circle)
        self._half = None if degree is None or degree >= len(circle) - 1 else degree // 2

    def neighbours(self, index: int) -> Users:
        """Return a user's neighbours, sorted."""
        if self._half is None:
            others: Users = self._sorted[self._sorted != index]
            return others
        steps = np.concatenate([np.arange(-self._half, 0), np.arange(1, self._half + 1)])
        around: Users = np.sort(self._circle[(self._position[index] + steps) % len(self._circle)])
        return around

    @cached_property
    def _position(self) -> dict[int, int]:
        return {index: position for position, index in enumerate(self._circle.tolist())}


@dataclass(frozen=True)
class Group:
    """One group. Inside, a user goes by its index in the sorted `users`."""

    number: int
    users: Users
    graph: CircleGraph
    """Who holds whose shares and masks with whom: everybody, or the neighbours on a circle."""

    @cached_property
    def numbers(self) -> list[int]:
        """The users as plain integers."""
        numbers: list[int] = self.users.tolist()
        return numbers

    @cached_property
    def index_of(self) -> dict[int, int]:
        """The index of each user."""
        return {user: index for index, user in enumerate(self.numbers)}

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class Groups:
    """All groups of an epoch."""

    groups: tuple[Group, ...]
    _group_of: NDArray[np.int64]

    def of(self, user: int) -> Group:
        """Return the group that a user is in."""
        return self.groups[int(self._group_of[user])]


@lru_cache(maxsize=4)  # All simulated users of a process ask for the same groups.
def draw_groups(seed: bytes, clients: int, groups: int, neighbours: int | None = None) -> Groups:
    """Draw the groups of an epoch from its public seed; `neighbours` makes the graph inside them sparse."""
    draws = public_stream(seed, "groups").read(8 * clients).view("<u8")
    order = np.argsort(draws, kind="stable")
    made: list[Group] = []
    group_of = np.empty(clients, np.int64)
    start = 0
    for number, size in enumerate(group_sizes(clients, groups)):
        drawn = order[start : start + size]
        users = np.sort(drawn)
        made.append(Group(number, users, CircleGraph(np.searchsorted(users, drawn), neighbours)))
        group_of[users] = number
        start += size
    return Groups(tuple(made), group_of)
