"""What groups of given sizes promise: the chance, per run, that a sum with too few honest users is opened.

The model. Of a population of users exactly `colluders` collude. Pods and, inside them, committees are drawn by one
random permutation and kept; a run has up to `DRAWS` draws, and each is charged. A committee of m users is opened only
if s or more of them survive; a pod of P users holds shares with threshold t. c_m and c_P of them collude.

A **lying** server may say that anybody dropped out, and chooses the draw it likes best. Nothing is random but the draw:

    2t ≤ P + c_P                                             both secrets of one user can be opened
    s − c_m < T                                              with CONFIRM: one set of survivors for the whole pod
    s − c_m − ⌊(P − t)(m − s)/(t − c_P)⌋ < T                 without: each holder may be told another set

The last one counts how many honest members can be declared dropped to enough holders. Each takes t − c_P honest
holders, each of the P − c_P honest holders accepts m − s dropped members at most, and so
m − c_m − ⌊(P − c_P)(m − s)/(t − c_P)⌋ honest members are left, which is the same number.

A **curious** server tells the truth. A committee fails if in some round its colluders, who always take part, and honest
survivors number s or more, and the honest survivors are fewer than T; or if the colluders of a pod hold t shares.

These are figures about patterns; nothing that makes a pattern uses them. Probabilities are natural logarithms except
where a name ends in log2.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.sizes import group_sizes, scaled
from sparsesecagg.patterns.tails import (
    IMPOSSIBLE,
    log_binomial,
    log_choose,
    log_hypergeometric,
    log_hypergeometric_at_least,
    log_sum,
    log_union,
)

Server = Literal["lying", "curious"]
SERVERS: Final[tuple[Server, ...]] = ("lying", "curious")
DRAWS: Final = 16
"""The most draws of a run; a lying server may choose among them."""
ROUNDS: Final = 1000
"""Rounds of a run over which a curious server waits for an unlucky one."""


@dataclass(frozen=True)
class Structure:
    """Pods and committees of a run, with what the smallest of them demand."""

    sizes: tuple[tuple[int, ...], ...]
    """For each pod, the sizes of its committees."""
    min_survivors: int
    """s of the smallest committee; larger ones demand the same fraction, rounded up."""
    threshold: int
    """t of the smallest pod; larger ones demand the same fraction, rounded up."""

    def __post_init__(self) -> None:
        """Reject thresholds that no group can have."""
        if not self.sizes or not all(pod and min(pod) >= 1 for pod in self.sizes):
            raise InvalidInput("sizes", f"must name at least one user in each committee, got {self.sizes}")
        for option, least, most in (
            ("min_survivors", self.min_survivors, self.smallest_committee),
            ("threshold", self.threshold, self.smallest_pod),
        ):
            if not 1 <= least <= most:
                raise InvalidInput(option, f"must be from 1 to {most}, the size of the smallest group, got {least}")

    @staticmethod
    def even(clients: int, committees: int, pods: int, *, min_survivors: int, threshold: int) -> Structure:
        """Return groups as equal as they can be."""
        sizes = tuple(tuple(pod) for pod in group_sizes(clients, committees, pods))
        return Structure(sizes, min_survivors, threshold)

    @cached_property
    def clients(self) -> int:
        """All users."""
        return sum(map(sum, self.sizes))

    @property
    def committees(self) -> int:
        """G."""
        return sum(map(len, self.sizes))

    @cached_property
    def smallest_committee(self) -> int:
        """Members of the smallest committee."""
        return min(map(min, self.sizes))

    @cached_property
    def smallest_pod(self) -> int:
        """Users of the smallest pod."""
        return min(map(sum, self.sizes))

    @cached_property
    def largest_pod(self) -> int:
        """Users of the largest pod."""
        return max(map(sum, self.sizes))

    @cached_property
    def kinds(self) -> Counter[tuple[int, int]]:
        """How many committees there are of each (own size, pod's size)."""
        pods = Counter(self.sizes)  # Few differ, so that each kind of pod is looked at once.
        kinds: Counter[tuple[int, int]] = Counter()
        for pod, count in pods.items():
            holders = sum(pod)
            for size, committees in Counter(pod).items():
                kinds[size, holders] += count * committees
        return kinds

    def survivors_of(self, size: int) -> int:
        """Return the survivors that a committee of `size` needs to be opened."""
        return scaled(self.min_survivors, size, self.smallest_committee)

    def threshold_of(self, size: int) -> int:
        """Return the shares that open a secret in a pod of `size`."""
        return scaled(self.threshold, size, self.smallest_pod)

    def among(self, clients: int) -> Structure:
        """Return the groups when only so many users are left: as many pods as before, or fewer, but no smaller ones.

        Too few users for one pod of the planned size make one pod, with as many committees of the planned size as
        possible, at least one. Thresholds keep their fraction of a group.
        """
        pods = max(1, min(len(self.sizes), clients // self.smallest_pod))
        each = self.committees // len(self.sizes)
        committees = pods * each if clients >= self.smallest_pod else max(1, clients // self.smallest_committee)
        sizes = tuple(tuple(pod) for pod in group_sizes(clients, committees, pods))
        return Structure(sizes, self.survivors_of(min(map(min, sizes))), self.threshold_of(min(map(sum, sizes))))


def colluder_count(clients: int, colluding: float) -> int:
    """Return A, the number of colluding users: γN rounded to the nearest, halves up (the safe side)."""
    return math.floor(colluding * clients + 0.5)


def availability(dropout: float) -> float:
    """Return (1 − θ²)(1 − θ): a user takes part in a round.

    It has a package for the round, dealt in either of the two rounds before, and does not drop out of this one.
    """
    return (1 - dropout**2) * (1 - dropout)


def failure_log2(
    groups: Structure,
    *,
    anonymity: int,
    colluders: int,
    population: int | None = None,
    server: Server = "lying",
    confirm: bool = False,
    dropout: float = 0.0,
    rounds: int = ROUNDS,
    draws: int = DRAWS,
) -> float:
    """Bound log2 P[in a run, a sum with fewer than `anonymity` honest users is opened] from above; −inf if never.

    `population`: of how many users `colluders` collude, if not of those in the groups: fewer, if users were excluded.
    `confirm` matters to a lying server only; `dropout` and `rounds` to a curious one only.
    """
    population = groups.clients if population is None else population
    if server not in SERVERS:
        raise InvalidInput("server", f"must be one of {', '.join(SERVERS)}, got {server!r}")
    if not 0 <= colluders <= population:
        raise InvalidInput("colluders", f"must be from 0 to the {population} users, got {colluders}")
    for option, count in (("anonymity", anonymity), ("rounds", rounds), ("draws", draws)):
        if count < 1:
            raise InvalidInput(option, f"must be at least 1, got {count}")
    if groups.largest_pod > population:
        groups = groups.among(population)
    logs = []
    for size, count in Counter(map(sum, groups.sizes)).items():
        threshold = groups.threshold_of(size)
        least = 2 * threshold - size if server == "lying" else threshold
        logs.append(log_union(log_hypergeometric_at_least(population, colluders, size, least), count))
    for (members, holders), count in groups.kinds.items():
        survivors = groups.survivors_of(members)
        if server == "curious":
            one = _log_unlucky(population, colluders, members, survivors, availability(dropout), anonymity, rounds)
        elif confirm:
            one = log_hypergeometric_at_least(population, colluders, members, survivors - anonymity + 1)
        else:
            threshold = groups.threshold_of(holders)
            one = _log_divided(population, colluders, (members, survivors), (holders, threshold), anonymity)
        logs.append(log_union(one, count))
    return log_union(log_sum(np.array(logs)), draws) / math.log(2)


def least_honest(committee: tuple[int, int], pod: tuple[int, int], colluders: tuple[int, int], *, confirm: bool) -> int:
    """Return how many honest users a lying server can't remove from a committee's sum; 0 if it can remove all.

    `committee` is (m, s), `pod` is (P, t), `colluders` is (c_m, c_P). With 2t ≤ P + c_P there is no bound.
    """
    (members, survivors), (holders, threshold), (inside, known) = committee, pod, colluders
    if 2 * threshold <= holders + known:
        return 0
    divided = 0 if confirm else (holders - threshold) * (members - survivors) // (threshold - known)
    return max(0, survivors - inside - divided)


def kept_anonymity(
    groups: Structure,
    *,
    allowed_log2: float,
    colluders: int,
    population: int | None = None,
    server: Server = "lying",
    confirm: bool = False,
    dropout: float = 0.0,
) -> int:
    """Return the largest T that the groups keep but for the allowed probability; 0 if they keep none."""
    low, high = 0, groups.smallest_committee
    while low < high:
        middle = (low + high + 1) // 2
        found = failure_log2(
            groups,
            anonymity=middle,
            colluders=colluders,
            population=population,
            server=server,
            confirm=confirm,
            dropout=dropout,
        )
        low, high = (middle, high) if found <= allowed_log2 else (low, middle - 1)
    return low


def _log_divided(
    population: int, colluders: int, committee: tuple[int, int], pod: tuple[int, int], anonymity: int
) -> float:
    """Return ln P[a lying server without CONFIRM leaves fewer than `anonymity` honest users], for 2t > P + c_P.

    Exact: c_m colluders in the committee, c_P − c_m in the rest of the pod, the others outside.
    """
    (members, survivors), (holders, threshold) = committee, pod
    known = np.arange(max(0, colluders - (population - holders)), min(colluders, 2 * threshold - holders - 1) + 1)
    if not len(known):
        return IMPOSSIBLE
    # t − c_P > 0, because 2t > P + c_P and t ≤ P.
    enough = survivors - anonymity - (holders - threshold) * (members - survivors) // (threshold - known)
    inside = np.arange(max(0, int(enough.min()) + 1), min(members, colluders) + 1)
    row, column = np.nonzero(inside[:, None] > enough[None, :])
    ways = log_choose(members, inside)[row] + log_choose(holders - members, known[column] - inside[row])
    ways += log_choose(population - holders, colluders - known)[column]
    return min(0.0, log_sum(ways - log_choose(population, np.array(colluders))))


def _log_unlucky(
    population: int,
    colluders: int,
    members: int,
    survivors: int,
    available: float,
    anonymity: int,
    rounds: int,
) -> float:
    """Bound ln P[in some round a committee is opened with fewer than `anonymity` honest survivors], truthful server."""
    inside = np.arange(max(0, survivors - anonymity + 1), min(members, colluders) + 1)
    if not len(inside):
        return IMPOSSIBLE
    present, honest = np.broadcast_arrays(np.arange(anonymity)[None, :], (members - inside)[:, None])
    opened = (present >= survivors - inside[:, None]) & (present <= honest)
    chances = log_binomial(np.where(opened, honest, 0), np.where(opened, present, 0), available)
    logs = np.where(opened, chances, IMPOSSIBLE)
    # The colluders stay where they are, the dropouts are drawn afresh in each round.
    per_run = np.minimum(0.0, np.logaddexp.reduce(logs, axis=1) + math.log(rounds))
    return min(0.0, log_sum(per_run + log_hypergeometric(population, colluders, members)[inside]))
