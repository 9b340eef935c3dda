"""A server that breaks nothing and keeps every sum it was ever given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.attacks.base import Attack, Reading, Setting, replaced
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.patterns import Groups
from sparsesecagg.lab.audit.many_rounds import estimate
from sparsesecagg.protocol import Parameters

ROUNDS = 1_000
COORDINATES = 40
PERSISTENT = 0.5
"""The part of an update's variance that is the same in every round."""
TOLD_APART = 0.5
"""Correlation, over the coordinates, of a user's estimated with its true distance from its committee's mean."""


class Watched:
    """A run whose sums are kept."""

    def __init__(self, params: Parameters) -> None:
        self.params = params

    def groups(self, round_number: int) -> Groups:
        """Return the groups of a round: those of the epoch, whatever the round."""
        del round_number
        return self.drawn(0)

    def drawn(self, number: int) -> Groups:
        """Return the groups of one draw."""
        return self.params.groups(digest("watched groups", number.to_bytes(8, "little")), self.params.structure)


@contextmanager
def without_kept_groups() -> Iterator[None]:
    """Draw committees anew in every round, as version 1 did."""
    with replaced(Watched, "groups", Watched.drawn):
        yield


def many_rounds(setting: Setting) -> Reading:
    """Attack 11: updates have a part that stays; solve for it from the sums at one coordinate of many rounds.

    Counts the users that are told apart from the others of their committee. Nobody drops out: what dropouts give away
    in any secure aggregation is measured in `privacy/many_rounds.py`. The sums are what rounds open, without the keys.
    """
    params = Parameters.create(clients=setting.clients, dim=COORDINATES * 100, alpha=setting.alpha)
    watched = Watched(params)
    committees = committee_of(watched.groups(1), setting.clients)
    rows = []
    for number in range(1, ROUNDS + 1):
        now = committee_of(watched.groups(number), setting.clients)
        rows += [now == each for each in range(params.committees) if 0 in params.slices.of(each, number)]
    members = np.array(rows, np.float64)
    rng = np.random.default_rng([setting.seed, 11])
    truth = rng.normal(0, np.sqrt(PERSISTENT), (setting.clients, COORDINATES))
    noise = rng.normal(0, 1, (len(members), COORDINATES)) * np.sqrt((1 - PERSISTENT) * members.sum(axis=1))[:, None]
    guess = estimate(members, members @ truth + noise, PERSISTENT)
    told_apart = 0
    for number in range(params.committees):
        one = committees == number
        ours, theirs = (each[one] - each[one].mean(axis=0) for each in (guess, truth))
        size = np.sqrt(np.sum(ours**2, axis=1) * np.sum(theirs**2, axis=1))
        likeness = np.sum(ours * theirs, axis=1) / np.maximum(size, 1e-6)
        told_apart += int(np.count_nonzero(likeness > TOLD_APART))
    return Reading(told_apart)


def committee_of(groups: Groups, clients: int) -> NDArray[np.int64]:
    """Return each user's committee, counted over all pods."""
    found = np.empty(clients, np.int64)
    for pod in groups.pods:
        found[pod.users] = pod.first + pod.committee_of
    return found


ATTACKS = [
    Attack(
        "many-rounds",
        "The server keeps the sums of 1,000 rounds and solves for the part of each user's updates that stays the same.",
        "Committees stay for a whole epoch: while nobody drops out, no number of its rounds tells the members of a "
        "committee apart.",
        many_rounds,
        without_kept_groups,
    )
]
