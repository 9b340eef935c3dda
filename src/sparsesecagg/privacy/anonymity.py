"""What groups promise: how many honest users every sum has that a server can open.

A cohort of N users is cut into K groups by a random draw. A group has P users of whom c collude; t shares open a secret
and a sum opens with t survivors or more. Then every sum that can be read has at least

    t − c                                  honest users, if the server follows the protocol (semi-honest);
    t − c − ⌊(P − t)² / (t − c)⌋           if it lies about anything (malicious), provided that 2t > P + c.

The first is the definition of t; docs/protocol.md proves the second. With 2t ≤ P + c one user can be read. With several
groups c is random (hypergeometric), and a plan allows a probability, per run, that some group of some draw has more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import require

ServerModel = Literal["malicious", "semi-honest"]
SERVER_MODELS: Final[tuple[ServerModel, ...]] = ("malicious", "semi-honest")
MAX_EPOCHS: Final = 16
"""The most epochs of a run with several groups: all draws are known at once, so a server takes the best of them."""
MAX_FAILED: Final = 0.02
"""The fraction of a group's rounds that the default threshold may fail in."""
LEAST_DROPOUT: Final = 0.01
"""A run whose owner expects no dropouts has this rate in its default threshold, so that one does not end it."""


@dataclass(frozen=True)
class Promise:
    """What a run's groups keep against one kind of server, except with probability 2^failure_log2 per run."""

    anonymity: int
    """Honest users in every sum that can be opened; 0 if one user can be read."""
    colluders: int
    """The most colluders in a group that this allows for."""
    failure_log2: float
    """Of more colluders than that in some group of some draw; −inf where that is impossible."""


def require_server(server: str) -> None:
    """Raise `InvalidInput` for what is no model of a server."""
    require("server", server in SERVER_MODELS, f"must be one of {', '.join(SERVER_MODELS)}, got {server!r}")


def colluder_count(users: int, colluding: float) -> int:
    """Return the number of colluding users: γN rounded to the nearest, halves up (the safe side)."""
    return math.floor(colluding * users + 0.5)


def planned_colluders(size: int, colluding: float) -> int:
    """Return c as the default threshold and the server's patience with accusers take it: at least one."""
    return max(1, colluder_count(size, colluding))


def availability(dropout: float) -> float:
    """Return (1 − θ²)(1 − θ): a user takes part in a round.

    It has a key package for the round, sent in either of the two rounds before, and does not drop out of this one.
    """
    return (1 - dropout**2) * (1 - dropout)


def failed_rounds(size: int, threshold: int, dropout: float) -> float:
    """Return the probability that fewer than `threshold` users of a group stay in a round."""
    return math.exp(log_binomial_below(size, availability(dropout), threshold))


def honest_in_sum(size: int, threshold: int, colluders: int, server: ServerModel) -> int:
    """Return how many honest users every sum of a group has that can be opened; 0 if there is no bound."""
    require_server(server)
    honest = threshold - colluders
    if honest <= 0 or server == "semi-honest":
        return max(0, honest)
    if 2 * threshold <= size + colluders:
        return 0
    return max(0, honest - (size - threshold) ** 2 // honest)


def least_threshold(size: int, colluders: int) -> int:
    """Return the least t with 2t > P + c and two honest users in every sum; all of the group if there is none."""
    first = (size + colluders) // 2 + 1
    return next((t for t in range(first, size) if honest_in_sum(size, t, colluders, "malicious") >= 2), size)


@lru_cache(maxsize=1024)
def available_threshold(size: int, dropout: float) -> int:
    """Return the largest t that fails in at most 2 % of a group's rounds."""
    rate = max(dropout, LEAST_DROPOUT)
    return 1 + bisect_left(range(2, size + 1), True, key=lambda t: failed_rounds(size, t, rate) > MAX_FAILED)


def default_threshold(smallest: int, largest: int, dropout: float, colluding: float) -> int:
    """Return t for groups of these sizes: as high as dropouts allow, and never so low that a sum hides nobody.

    max(the largest t that fails in at most 2 % of the smallest group's rounds, the least t that keeps the largest one).
    """
    least = least_threshold(largest, planned_colluders(largest, colluding))
    return min(smallest, max(available_threshold(smallest, dropout), least))


def excess_log2(sizes: tuple[int, ...], colluders: int, most: int) -> float:
    """Bound log2 P[in some draw of a run some group has more than `most` of the run's colluders]; −inf if never.

    One group has all of them: nothing is drawn, so nothing is charged.
    """
    clients = sum(sizes)
    if len(sizes) == 1:
        return IMPOSSIBLE if colluders <= most else 0.0
    tails = {size: log_hypergeometric_at_least(clients, colluders, size, most + 1) for size in set(sizes)}
    logs = [log_union(tail, sizes.count(size)) for size, tail in tails.items()]
    return log_union(log_sum(np.array(logs)), MAX_EPOCHS) / math.log(2)


@lru_cache(maxsize=4096)
def colluders_in_a_group(sizes: tuple[int, ...], colluders: int, failure_log2: float) -> int:
    """Return the least c that the colluders of no group in any draw exceed, except with the given probability."""
    counts = range(min(colluders, max(sizes)))
    return bisect_left(counts, True, key=lambda most: excess_log2(sizes, colluders, most) <= failure_log2)


def promise(
    sizes: tuple[int, ...], threshold: int, colluders: int, server: ServerModel, failure_log2: float
) -> Promise:
    """Return what groups of these sizes keep, `colluders` of all their users colluding. The largest one decides."""
    require("colluders", 0 <= colluders <= sum(sizes), f"must be from 0 to the {sum(sizes)} users, got {colluders}")
    most = colluders_in_a_group(sizes, colluders, failure_log2)
    kept = min(honest_in_sum(size, threshold, min(most, size), server) for size in set(sizes))
    return Promise(kept, most, excess_log2(sizes, colluders, most))


# Exact tails, as natural logarithms, because the interesting probabilities are near 2^−40 and smaller. All sums have
# positive terms only, so nothing cancels.

Logs = NDArray[np.float64]
Counts = NDArray[np.int64]
IMPOSSIBLE: Final = -math.inf
ROUNDING: Final = 1e-6
"""Covers the floating-point error: log-factorials of up to 10^6 are below 1.3·10^7, and six enter a probability."""


@lru_cache(maxsize=24)
def _log_factorials(size: int) -> Logs:
    return np.array([math.lgamma(n + 1) for n in range(size)])


def _times_log(counts: Counts, probability: float) -> Logs:
    """Return counts · ln(probability), with 0 · ln(0) = 0."""
    if probability > 0:
        return counts.astype(np.float64) * math.log(probability)
    return np.where(counts == 0, 0.0, IMPOSSIBLE)


def log_sum(logs: Logs) -> float:
    """Return ln Σ exp(logs)."""
    largest = float(logs.max(initial=IMPOSSIBLE))
    if largest == IMPOSSIBLE:
        return IMPOSSIBLE
    return largest + math.log(float(np.exp(logs - largest).sum()))


def log_choose(whole: int, parts: Counts) -> Logs:
    """Return ln of the binomial coefficients; impossible where `parts` is below 0 or above `whole`."""
    table = _log_factorials(1 << max(10, (whole + 1).bit_length()))  # So that a search over sizes shares one table.
    possible = (parts >= 0) & (parts <= whole)
    inside = np.where(possible, parts, 0)
    return np.where(possible, table[whole] - table[inside] - table[whole - inside], IMPOSSIBLE)


def log_binomial(trials: int, successes: Counts, probability: float) -> Logs:
    """Return ln P[Bin(trials, probability) = successes], element by element."""
    logs = _times_log(successes, probability) + _times_log(trials - successes, 1 - probability)
    return log_choose(trials, successes) + logs


def log_binomial_below(trials: int, probability: float, bound: int) -> float:
    """Return ln P[Bin(trials, probability) < bound]."""
    if bound > trials:
        return 0.0
    successes = np.arange(max(bound, 0))
    return min(0.0, log_sum(log_binomial(trials, successes, probability)))


def log_hypergeometric_at_least(population: int, marked: int, draws: int, bound: int) -> float:
    """Return ln P[at least `bound` marked among `draws` drawn without replacement]."""
    if bound <= 0:
        return 0.0
    hits = np.arange(bound, draws + 1)
    logs = log_choose(marked, hits) + log_choose(population - marked, draws - hits)
    return min(0.0, log_sum(logs - log_choose(population, np.array(draws))))


def log_union(log_probability: float, events: int) -> float:
    """Bound ln P[any of `events` events], each of this probability, from above."""
    return min(0.0, log_probability + math.log(events) + ROUNDING)
