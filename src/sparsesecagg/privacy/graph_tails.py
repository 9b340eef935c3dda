"""Tail probabilities of k-regular graphs: who holds shares, and whether masks still tie users together.

Source: Bell, Bonawitz, Gascón, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic
Overhead", CCS 2020 (ePrint 2020/704), the section on choosing the number of neighbours and the threshold
for a random Harary graph. Users are put on a ring in random order and joined with their `degree` nearest;
so the neighbours of one user are a uniformly random set, and the number of colluders among them is
hypergeometric. We differ in one point: dropouts are independent (binomial), as in the paper of
SparseSecAgg, rather than a fixed number.

A complete graph is the case degree = clients − 1. Probabilities are natural logarithms, see tails.py.
"""

from __future__ import annotations

import math

import numpy as np

from sparsesecagg.privacy.tails import (
    IMPOSSIBLE,
    log_binomial_below,
    log_hypergeometric,
    log_hypergeometric_at_least,
    log_sum,
    log_union,
)


def log_disconnected(nodes: int, degree: int, dropout: float, colluders: int, population: int | None = None) -> float:
    """Bound ln P[the honest survivors of a random ring graph fall apart] from above.

    The ring has `nodes` users drawn from `population` (default: all of it), of which `colluders` collude.
    Users next to each other among the honest survivors are joined unless at least degree/2 consecutive ring
    places between them are lost. To split the ring takes two such gaps, with somebody left between them on
    both sides: there are nodes·(nodes − degree − 1)/2 places for such a pair, and each needs `degree`
    particular users to drop or collude.
    """
    population = nodes if population is None else population
    reach = degree // 2  # An odd degree adds the opposite user; leaving that edge out can only raise the bound.
    if degree >= nodes - 1:
        return IMPOSSIBLE  # Complete: any two are joined.
    if reach == 0:
        return 0.0
    lost = 2 * reach
    places = nodes * max(0, nodes - lost - 1) // 2
    if places == 0:
        return IMPOSSIBLE
    colluding = log_hypergeometric(population, colluders, lost)
    others = lost - np.arange(lost + 1)
    dropped = others * math.log(dropout) if dropout > 0 else np.where(others == 0, 0.0, IMPOSSIBLE)
    return log_union(log_sum(colluding + dropped), places)


def log_shares_exposed(clients: int, colluders: int, degree: int, threshold: int) -> float:
    """Bound ln P[the colluders hold `threshold` shares of some honest user] from above.

    They could then open both of that user's secrets, the private mask's seed and the mask key.
    """
    one = log_hypergeometric_at_least(clients - 1, colluders, degree, threshold)
    return log_union(one, max(1, clients - colluders))


def log_shares_split(clients: int, colluders: int, degree: int, threshold: int) -> float:
    """Bound ln P[a lying server can open both secrets of some honest user] from above.

    It tells one part of the user's degree + 1 holders (its own share counts) that the user dropped and the
    other part that it survived; the c colluding holders help both times. That takes 2·(threshold − c) ≤
    degree + 1 − c.
    """
    return log_shares_exposed(clients, colluders, degree, 2 * threshold - degree - 1)


def log_holders_missing(degree: int, dropout: float, threshold: int) -> float:
    """Return ln P[fewer than `threshold` of one user's `degree` neighbours survive].

    A survivor has its own share too, a dropped user's is lost: the latter is the worse case and is used for
    all.
    """
    return log_binomial_below(degree, 1 - dropout, threshold)


def log_too_few_survivors(clients: int, dropout: float, threshold: int) -> float:
    """Return ln P[fewer than `threshold` of all users survive]; ends a round with a complete share graph."""
    return log_binomial_below(clients, 1 - dropout, threshold)
