"""Exact tail probabilities in log space, and what they say about committees.

The model: of `clients` users exactly `colluders` collude, committees are drawn without replacement
(hypergeometric), and every user drops out after SHARE_KEYS with probability `dropout`, independently
(binomial). Late dropouts are the worst case: users who leave earlier are not drawn into a committee, so those who
stay are spread evenly over the committees instead of by chance.

Probabilities are natural logarithms, because the interesting ones are near 2^−40 and smaller. All sums have
positive terms only, so nothing cancels. Bounds over many blocks are union bounds; they hold whatever the
dependence between blocks is. Every function that promises an upper bound adds `ROUNDING` to cover the
floating-point error.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput

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


def log_difference(whole: float, part: float) -> float:
    """Return ln(e^whole − e^part) for part ≤ whole, rounded down: what is left of a budget."""
    left = -math.expm1(part - whole)
    return whole + math.log(left) - ROUNDING if left > 0 else IMPOSSIBLE


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


def log_binomial_below_each(most: int, probability: float, bound: int) -> Logs:
    """Return ln P[Bin(n, probability) < bound] for n = 0 … most, in time O(most).

    One more trial leaves the event only by a success on top of bound − 1 earlier ones: P[Bin(n) < b] =
    P[Bin(n+1) < b] + probability · P[Bin(n) = b − 1]. Read from the end, all terms are positive.
    """
    if bound <= 0:
        return np.full(most + 1, IMPOSSIBLE)
    below = np.zeros(most + 1)
    if most >= bound:
        trials = np.arange(bound, most)
        leaving = log_binomial(trials, np.full_like(trials, bound - 1), probability)
        leaving += math.log(probability) if probability > 0 else IMPOSSIBLE
        last = log_binomial_below(most, probability, bound)
        below[bound:] = np.logaddexp.accumulate(np.append(leaving, last)[::-1])[::-1]
    return np.minimum(below, 0.0)


def log_hypergeometric(population: int, marked: int, draws: int) -> Logs:
    """Return ln P[k marked among `draws` drawn without replacement] for k = 0 … draws."""
    table = _log_factorials(population)
    hits = np.arange(draws + 1)
    misses = draws - hits
    possible = (hits <= marked) & (misses <= population - marked)
    hits, misses = hits[possible], misses[possible]
    logs = np.full(draws + 1, IMPOSSIBLE)
    unmarked = population - marked
    logs[possible] = (
        (table[marked] - table[hits] - table[marked - hits])
        + (table[unmarked] - table[misses] - table[unmarked - misses])
        - (table[population] - table[draws] - table[population - draws])
    )
    return logs


def log_hypergeometric_at_least(population: int, marked: int, draws: int, bound: int) -> float:
    """Return ln P[at least `bound` marked among `draws` drawn without replacement]."""
    if bound <= 0:
        return 0.0
    return min(0.0, log_sum(log_hypergeometric(population, marked, draws)[bound:]))


def log_honest_survivors_below(clients: int, colluders: int, size: int, dropout: float, needed: int) -> float:
    """Return ln P[fewer than `needed` of a random committee of `size` are honest and survive]."""
    honest = log_hypergeometric(clients, clients - colluders, size)
    return min(0.0, log_sum(honest + log_binomial_below_each(size, 1 - dropout, needed)))


def log_union(log_probability: float, events: int) -> float:
    """Bound ln P[any of `events` events], each of this probability, from above."""
    return min(0.0, log_probability + math.log(events) + ROUNDING)


def independent_or_better(*failures: tuple[float, int]) -> float:
    """Bound P[any failure] from above for failures that more survivors can only avert.

    Takes pairs (ln probability, how many such events). "Enough survivors" is an increasing event in the
    independent survival of the users, and increasing events are positively correlated (Harris' inequality),
    so the chance that none fails is at least the product, as if they were independent.
    """
    if any(log_probability > -1e-15 for log_probability, _ in failures):
        return 1.0
    log_success = sum(events * math.log1p(-math.exp(log_probability)) for log_probability, events in failures)
    return min(1.0, abs(math.expm1(log_success)) * (1 + ROUNDING))


def committee_sizes(clients: int, share: Fraction) -> list[tuple[int, int]]:
    """Return the sizes of a stripe's committees, smaller first, and how many have each.

    Users serve `share` = a/b of the blocks: b committees of ⌊a·N/b⌋ or ⌈a·N/b⌉ members, with a·N places in all.
    """
    if not 1 <= clients * share <= clients:
        raise InvalidInput("share", f"must be between 1/{clients} (a committee of one) and 1, not {share}")
    small, larger = divmod(clients * share.numerator, share.denominator)
    return [(size, count) for size, count in ((small, share.denominator - larger), (small + 1, larger)) if count]


def distinct_blocks(share: Fraction, stripes: int) -> int:
    """Return how many committees a round has, b per stripe; if all serve everything, each of them is everybody."""
    return 1 if share == 1 else share.denominator * stripes


def log_privacy_failure(
    clients: int, colluders: int, share: Fraction, stripes: int, *, dropout: float, anonymity: int
) -> float:
    """Bound ln P[some block is opened with fewer than `anonymity` honest survivors] from above.

    Users serve `share` = a/b of the blocks. Every block is counted as if its committee had the smaller of the two sizes
    ⌊a·N/b⌋ and ⌈a·N/b⌉. That a client refuses to open such a block (`min_survivors`) can only lower the probability
    and is not used.
    """
    one = log_honest_survivors_below(clients, colluders, committee_sizes(clients, share)[0][0], dropout, anonymity)
    return log_union(one, distinct_blocks(share, stripes))


def log_refusal(clients: int, share: Fraction, dropout: float, min_survivors: int) -> float:
    """Return ln P[fewer than `min_survivors` of one committee survive], for the smaller committee size."""
    return log_binomial_below(committee_sizes(clients, share)[0][0], 1 - dropout, min_survivors)


def log_forced_failure(
    clients: int, colluders: int, share: Fraction, stripes: int, *, min_survivors: int, anonymity: int
) -> float:
    """Bound ln P[a server that lies about dropouts opens a block of fewer than `anonymity` honest users].

    Clients refuse a block with fewer than `min_survivors` survivors, so more than min_survivors − anonymity
    of its committee must collude. The larger committee size is the worse one here.
    """
    size = committee_sizes(clients, share)[-1][0]
    one = log_hypergeometric_at_least(clients, colluders, size, min_survivors - anonymity + 1)
    return log_union(one, distinct_blocks(share, stripes))
