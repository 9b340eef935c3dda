"""How many users draw the groups: a jury in which colluders are a majority with probability 2^−128 at most.

The jury is a uniformly random set of K users, so the colluders in it are hypergeometric. Its random draw is honest as
long as fewer than half of it collude. The bound is 2^−128, not 2^−40, because whoever enters the roster last can search
over its own entry for a jury that it likes.

Integers only: every user computes the same K.
"""

from __future__ import annotations

from math import comb

from sparsesecagg.errors import InvalidInput

JURY_FAILURE_BITS = 128


def jury_size(clients: int, colluders: int) -> int:
    """Return the smallest K with Pr[at least K/2 of K random users collude] ≤ 2^−128, exactly; at most 2C + 1.

    K is odd: an even K fails whenever the K − 1 first drawn would. Among odd K the probability falls: two more jurors
    overturn an honest majority of one with weight (C−j+1)(C−j), a colluding one with weight (C−j+1)(H−j), where
    H > C users are honest, 2j − 1 = K. So the smallest one can be found by bisection.
    """
    if not 0 <= 2 * colluders < clients:
        raise InvalidInput("colluders", f"must be at least 0 and fewer than half of {clients} clients, got {colluders}")
    # K = 2j + 1. Doubling first, since small binomials are fast; with 2C + 1 jurors colluders can't be half.
    low, high = 0, min(64, colluders)
    while high < colluders and not _is_safe(clients, colluders, 2 * high + 1):
        low, high = high + 1, min(2 * high, colluders)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_safe(clients, colluders, 2 * middle + 1) else (middle + 1, high)
    return 2 * low + 1


def _is_safe(clients: int, colluders: int, jurors: int) -> bool:
    """Tell whether `jurors` random users have a colluding majority with probability 2^−128 at most."""
    honest = clients - colluders
    count = jurors // 2 + 1
    juries = comb(colluders, count) * comb(honest, jurors - count)
    failing = 0
    while juries:
        failing += juries
        # From one number of colluders to the next; the division leaves no remainder.
        juries = juries * (colluders - count) * (jurors - count) // ((count + 1) * (honest - jurors + count + 1))
        count += 1
    return failing << JURY_FAILURE_BITS <= comb(clients, jurors)
