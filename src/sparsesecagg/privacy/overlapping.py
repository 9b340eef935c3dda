"""Bounds for overlapping committees that are drawn anew in each round, as `protocol.RoundParameters` has them.

The planner does not use them: it plans groups that stay (`patterns.anonymity`).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.tails import (
    IMPOSSIBLE,
    ROUNDING,
    Logs,
    log_binomial,
    log_binomial_below,
    log_hypergeometric,
    log_sum,
    log_union,
)


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


def log_honest_survivors_below(clients: int, colluders: int, size: int, dropout: float, needed: int) -> float:
    """Return ln P[fewer than `needed` of a random committee of `size` are honest and survive]."""
    honest = log_hypergeometric(clients, clients - colluders, size)
    return min(0.0, log_sum(honest + log_binomial_below_each(size, 1 - dropout, needed)))


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
