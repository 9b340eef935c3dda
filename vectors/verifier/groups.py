"""Seeds of epochs, permutations, groups and partners (4)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from vectors.verifier.errors import demand
from vectors.verifier.hashing import KeyStream, derive, little_endian
from vectors.verifier.keys import Roster
from vectors.verifier.parameters import Parameters

MOST_EPOCHS = 16


class Group(NamedTuple):
    """A group; everybody in it goes by the user number here, and by the index in `users` in messages."""

    number: int
    users: list[int]
    partners: dict[int, list[int]]


def epoch_seed(p: Parameters, epoch: int, roster: Roster | None) -> bytes:
    """Return the public seed of an epoch."""
    demand(p.groups == 1 or epoch <= MOST_EPOCHS, "PolicyViolation", "a seventeenth draw")
    return roster.epoch_seed(epoch) if roster else derive(p.session, "epoch", p.digest, little_endian(epoch, 8))


def permutation(users: int, seed: bytes) -> list[int]:
    """Permute users: sort them by integers drawn for them."""
    stream = KeyStream(derive(seed, "groups", b""))
    drawn = [stream.integer(8) for _ in range(users)]
    return sorted(range(users), key=lambda user: (drawn[user], user))


def circle_partners(circle: Sequence[int], degree: int) -> dict[int, list[int]]:
    """Return everybody's partners, sorted."""
    n = len(circle)
    if degree == 0 or degree >= n - 1:
        return {user: sorted(set(circle) - {user}) for user in circle}
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    return {user: sorted(circle[(place + step) % n] for step in steps) for place, user in enumerate(circle)}


def draw_groups(p: Parameters, seed: bytes) -> list[Group]:
    """Cut the permuted users into groups."""
    order, cuts = permutation(p.clients, seed), p.cuts
    drawn = [order[start:stop] for start, stop in pairwise(cuts)]
    return [Group(number, sorted(each), circle_partners(each, p.neighbours)) for number, each in enumerate(drawn)]
