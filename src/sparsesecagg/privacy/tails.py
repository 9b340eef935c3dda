"""Exact tail probabilities in log space: binomial (who drops out) and hypergeometric (who colludes).

Probabilities are natural logarithms, because the interesting ones are near 2^−40 and smaller. All sums have positive
terms only, so nothing cancels. Bounds over many groups are union bounds; they hold whatever the dependence between
groups is. Every function that promises an upper bound adds `ROUNDING` to cover the floating-point error.

These are figures about patterns; nothing that makes a pattern uses them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Logs = NDArray[np.float64]
Counts = NDArray[np.int64]

IMPOSSIBLE: Final = -math.inf
# log-factorials of up to 10^6 are below 1.3·10^7 and right to about 10^−16 of that; six of them enter a
# probability.
ROUNDING: Final = 1e-6


@lru_cache(maxsize=24)
def _log_factorial_table(size: int) -> Logs:
    return np.array([math.lgamma(n + 1) for n in range(size)])


def _log_factorials(largest: int) -> Logs:
    # Powers of two, so that a search over sizes shares one table.
    return _log_factorial_table(1 << max(10, (largest + 1).bit_length()))


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
    table = _log_factorials(whole)
    possible = (parts >= 0) & (parts <= whole)
    inside = np.where(possible, parts, 0)
    return np.where(possible, table[whole] - table[inside] - table[whole - inside], IMPOSSIBLE)


def log_binomial(trials: Counts, successes: Counts, probability: float) -> Logs:
    """Return ln P[Bin(trials, probability) = successes], element by element; needs 0 ≤ successes ≤ trials."""
    table = _log_factorials(int(trials.max(initial=0)))
    failures = trials - successes
    choose: Logs = table[trials] - table[successes] - table[failures]
    return choose + _times_log(successes, probability) + _times_log(failures, 1 - probability)


def log_binomial_below(trials: int, probability: float, bound: int) -> float:
    """Return ln P[Bin(trials, probability) < bound]."""
    if bound > trials:
        return 0.0
    successes = np.arange(max(bound, 0))
    return min(0.0, log_sum(log_binomial(np.full_like(successes, trials), successes, probability)))


def log_hypergeometric(population: int, marked: int, draws: int) -> Logs:
    """Return ln P[k marked among `draws` drawn without replacement] for k = 0 … draws."""
    hits = np.arange(draws + 1)
    pairs = log_choose(marked, hits) + log_choose(population - marked, draws - hits)
    logs: Logs = pairs - log_choose(population, np.array(draws))
    return logs


def log_hypergeometric_at_least(population: int, marked: int, draws: int, bound: int) -> float:
    """Return ln P[at least `bound` marked among `draws` drawn without replacement]."""
    if bound <= 0:
        return 0.0
    return min(0.0, log_sum(log_hypergeometric(population, marked, draws)[bound:]))


def log_union(log_probability: float, events: int) -> float:
    """Bound ln P[any of `events` events], each of this probability, from above."""
    return min(0.0, log_probability + math.log(events) + ROUNDING)
