"""Permutations, pods, committees and partners (4)."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from vectors.verifier.hashing import KeyStream, derive
from vectors.verifier.parameters import Parameters


class Pod(NamedTuple):
    """A pod; everybody in it goes by the user number here, and by the place in `users` in messages."""

    number: int
    first: int
    users: list[int]
    committees: list[list[int]]
    partners: dict[int, list[int]]

    def committee_of(self, user: int) -> int:
        """Return which of the pod's committees a user is in."""
        return next(number for number, members in enumerate(self.committees) if user in members)


def permutation(users: Sequence[int], seed: bytes) -> list[int]:
    """Permute sorted users: sort them by integers drawn for them."""
    stream = KeyStream(derive(seed, "groups", b""))
    drawn = {user: stream.integer(8) for user in users}
    return sorted(users, key=lambda user: (drawn[user], user))


def circle_partners(circle: Sequence[int], degree: int) -> dict[int, list[int]]:
    """Return everybody's partners, sorted."""
    n = len(circle)
    if degree == 0 or degree >= n - 1:
        return {user: sorted(set(circle) - {user}) for user in circle}
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    return {user: sorted(circle[(place + step) % n] for step in steps) for place, user in enumerate(circle)}


def draw_groups(p: Parameters, seed: bytes, excluded: Collection[int] = ()) -> list[Pod]:
    """Deal the permuted users out, committee after committee."""
    order = permutation([user for user in range(p.clients) if user not in excluded], seed)
    pods, first, start = [], 0, 0
    for number, sizes in enumerate(p.sizes_among(len(order))):
        drawn = order[start : start + sum(sizes)]
        committees, begin = [], 0
        for size in sizes:
            committees.append(sorted(drawn[begin : begin + size]))
            begin += size
        pods.append(Pod(number, first, sorted(drawn), committees, circle_partners(drawn, p.neighbours)))
        start, first = start + sum(sizes), first + len(sizes)
    return pods
