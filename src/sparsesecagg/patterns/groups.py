"""Groups: the cohort is cut into pods, a pod into committees, once per epoch.

Pods hold each other's shares; committees mask together and send the same slices of the model. One random permutation
of all users decides who is where. Nobody is left over: the sizes of committees differ by one at most, and so do the
numbers of committees in the pods. `full` and `pairwise` are one pod with one committee.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.patterns.graphs import CircleGraph, Users, permutation

SMALLEST_COMMITTEE = 3


@dataclass(frozen=True)
class Pod:
    """Users that hold each other's shares. Inside, a user goes by its place in the sorted `users`."""

    index: int
    first: int
    """The number of its first committee, counted over all pods."""
    users: Users
    committees: tuple[NDArray[np.int64], ...]
    """The places of each committee's members, sorted."""
    graph: CircleGraph
    """Who holds whose shares, by place: everybody, or the neighbours on a circle."""

    @cached_property
    def place(self) -> dict[int, int]:
        """The place of each user."""
        return {user: place for place, user in enumerate(self.users.tolist())}

    @cached_property
    def committee_of(self) -> NDArray[np.int64]:
        """By place: which of the pod's committees."""
        which = np.empty(len(self.users), np.int64)
        for number, members in enumerate(self.committees):
            which[members] = number
        return which

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class Groups:
    """All pods of an epoch."""

    pods: tuple[Pod, ...]
    _pod_of: NDArray[np.int64]

    def pod_of(self, user: int) -> Pod | None:
        """Return the pod that a user is in; None for one that is excluded."""
        index = int(self._pod_of[user])
        return None if index < 0 else self.pods[index]


@lru_cache(maxsize=4)  # All simulated users of a process ask for the same groups.
def draw_groups(
    seed: bytes,
    clients: int,
    excluded: frozenset[int],
    sizes_of_pods: tuple[tuple[int, ...], ...],
    neighbours: int | None = None,
) -> Groups:
    """Draw groups of these sizes from a public seed; `neighbours` makes the share graph of a single pod sparse."""
    order = permutation(seed, "groups", np.delete(np.arange(clients), sorted(excluded)))
    made: list[Pod] = []
    pod_of = np.full(clients, -1, np.int64)
    start = first = 0
    for index, sizes in enumerate(sizes_of_pods):
        drawn = order[start : start + sum(sizes)]
        users = np.sort(drawn)
        members = [np.searchsorted(users, np.sort(part)) for part in np.split(drawn, np.cumsum(sizes)[:-1])]
        graph = CircleGraph(np.searchsorted(users, drawn), neighbours)
        made.append(Pod(index, first, users, tuple(members), graph))
        pod_of[users] = index
        start, first = start + len(drawn), first + len(sizes)
    return Groups(tuple(made), pod_of)
