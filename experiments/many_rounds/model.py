"""What a server learns about single users from the sums of many rounds, without breaking any of them.

Masks hide what is in one sum. They do not hide that the next sum has other users in it: two sums can be subtracted. If
a user's updates have a part that stays the same (its data does), a server that keeps all sums it ever opened can solve
for that part. How well depends on which users were in which sum, and on nothing else; so this module needs no keys.
A test shows that the sums of a real run are the ones assumed here.

Three ways to add up, at one coordinate of the model: `kept` groups as in this protocol, `fresh` ones that are drawn
anew in every round, and `secagg`, one sum of everybody in every round. An update is a persistent part plus noise, both
normal and of mean zero; the server knows the variances and who was in each sum, and estimates by ridge regression,
which is the best estimate in this model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.attacks.identities import estimate
from sparsesecagg.patterns.groups import group_sizes
from sparsesecagg.patterns.sliced import block_of
from sparsesecagg.privacy.anonymity import colluder_count

Members = NDArray[np.bool_]
"""Shape (sums, users): who is in which sum."""

WAYS = ("kept", "fresh", "secagg")


@dataclass(frozen=True)
class ManyRounds:
    """A cohort whose sums are watched for many rounds."""

    clients: int = 100
    groups: int = 1
    alpha: float = 1.0
    dropout: float = 0.0
    persistent: float = 0.5
    """The part of an update's variance that is the same in every round."""
    colluding: float = 0.0
    """Colluders know their own updates: they are taken out of the sums."""
    threshold: int = 1
    """A group with fewer survivors is not opened."""

    def __post_init__(self) -> None:
        if not 0 < self.persistent <= 1:
            raise InvalidInput("persistent", f"must be in (0, 1], got {self.persistent:g}")
        if not 1 <= self.groups <= self.clients:
            raise InvalidInput("groups", f"must be from 1 to {self.clients}, got {self.groups}")
        if not 0 <= self.dropout < 1:
            raise InvalidInput("dropout", f"must be in [0, 1), got {self.dropout:g}")

    @property
    def honest(self) -> int:
        """How many users do not collude."""
        return self.clients - colluder_count(self.clients, self.colluding)


def drawn_groups(settings: ManyRounds, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return each user's group in a random draw."""
    sizes = group_sizes(settings.clients, settings.groups)
    return rng.permutation(np.repeat(np.arange(settings.groups), sizes))


def sending(settings: ManyRounds, round_number: int) -> list[int]:
    """Return the groups that send the first coordinate of a block with offset 0 in a round."""
    part, length = block_of(round(settings.alpha * 2**32))
    shifts = [number * length // settings.groups + part * round_number for number in range(settings.groups)]
    return [number for number, shift in enumerate(shifts) if -shift % length < part]


def sums_of_round(settings: ManyRounds, group_of: NDArray[np.int64], survives: Members, number: int) -> Members:
    """Return who is in the sums of one coordinate that a round opens, for given groups and survivors."""
    members = [(group_of == group) & survives for group in sending(settings, number)]
    opened = [each for each in members if np.count_nonzero(each) >= settings.threshold]
    return np.array(opened, np.bool_).reshape(-1, settings.clients)


def draw_sums(settings: ManyRounds, way: str, rounds: int, rng: np.random.Generator) -> list[Members]:
    """Return, round by round, who is in the sums at one coordinate; users without colluders, which come last."""
    if way not in WAYS:
        raise InvalidInput("way", f"must be one of {', '.join(WAYS)}, got {way!r}")
    group_of = drawn_groups(settings, rng)
    colludes = np.arange(settings.clients) >= settings.honest
    found = []
    for number in range(1, rounds + 1):
        survives = (rng.random(settings.clients) >= settings.dropout) | colludes
        if way == "fresh":
            group_of = drawn_groups(settings, rng)
        sums = survives[None] if way == "secagg" else sums_of_round(settings, group_of, survives, number)
        found.append(sums[:, : settings.honest])
    return found


def correlation(guess: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Return how well guesses tell users apart: their correlation with each user's deviation from the mean of all."""
    guess = guess - guess.mean(axis=0)
    truth = truth - truth.mean(axis=0)
    spread = np.sqrt(float(np.sum(guess**2)) * float(np.sum(truth**2)))
    return float(np.sum(guess * truth)) / spread if spread > 1e-9 * float(np.sum(truth**2)) else 0.0


def watch(
    settings: ManyRounds, way: str, rounds: Sequence[int], *, coordinates: int = 40, draws: int = 5, seed: int = 0
) -> list[float]:
    """Return the correlation after each of `rounds`: on average over `draws` of groups and dropouts.

    All `coordinates` of one slice are in the same sums and are estimated together.
    """
    found = np.zeros(len(rounds))
    for draw in range(draws):
        rng = np.random.default_rng([seed, WAYS.index(way), draw])
        by_round = draw_sums(settings, way, max(rounds), rng)
        truth = rng.normal(0, np.sqrt(settings.persistent), (settings.honest, coordinates))
        members = np.concatenate(by_round).astype(np.float64)
        size = members.sum(axis=1)[:, None]
        # The noise of a sum of n users is normal with n times the variance of one: no need to draw every user's.
        noise = rng.normal(0, 1, (len(members), coordinates)) * np.sqrt((1 - settings.persistent) * size)
        sums = members @ truth + noise
        ends = np.cumsum([len(each) for each in by_round])
        for place, number in enumerate(rounds):
            end = int(ends[number - 1])
            found[place] += correlation(estimate(members[:end], sums[:end], settings.persistent), truth)
    return [float(each) for each in found / draws]


# Weights: constant, and without noise


def rounds_to_solve(members: int, dropout: float, rng: np.random.Generator, most: int = 10_000) -> int:
    """Return after how many rounds the sums of one group give every member's weight; `most` if never.

    A group opens the sum of its survivors' weights in every round. All weights follow when as many of these sums
    are independent as the group has members.
    """
    basis = np.empty((0, members))
    for number in range(1, most + 1):
        survives = (rng.random(members) >= dropout).astype(np.float64)
        rest = survives - basis.T @ (basis @ survives)
        rest -= basis.T @ (basis @ rest)  # Once more, for what rounding has left.
        length = float(np.linalg.norm(rest))
        if length > 1e-6:
            basis = np.vstack([basis, rest / length])
        if len(basis) == members:
            return number
    return most
