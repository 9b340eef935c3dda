"""How many users a jury needs so that colluders are a minority in it.

A jury is a random sample of the users. It is large enough when colluders make up half of it or more with probability at
most 2^−128. That is far less than the 2^−40 of a plan, because the sample follows from a public hash of the roster, and
whoever enters the roster last can try many entries of its own.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

from sparsesecagg.errors import InvalidInput

JURY_FAILURE_LOG2 = -128


@lru_cache(maxsize=256)
def jury_size(clients: int, colluders: int) -> int:
    """Return the smallest K with Pr[colluders ≥ K/2 among K users drawn from all] ≤ 2^−128; exact integers.

    It is odd, since one juror fewer than an even number needs as many colluders for half. Over odd K the probability
    falls as long as colluders are a minority of all: of two more jurors, both must be colluders to turn a jury that
    stands at (K−1)/2 colluders, and both honest to turn one back that stands at (K+1)/2; by the ratio of the two
    probabilities the second is at least as likely. So the smallest K can be found by bisection, and 2C + 1 always do.
    """
    if not 0 <= 2 * colluders < clients:
        raise InvalidInput("colluders", f"must be from 0 to fewer than half of the {clients} clients, got {colluders}")
    low, high = 0, colluders  # K = 2·high + 1 is enough.
    while low < high:
        middle = (low + high) // 2
        if _is_enough(clients, colluders, 2 * middle + 1):
            high = middle
        else:
            low = middle + 1
    return 2 * high + 1


def _is_enough(clients: int, colluders: int, size: int) -> bool:
    """Return whether Pr[colluders in the jury ≥ size/2] ≤ 2^−128, for an odd size."""
    honest, half = clients - colluders, (size + 1) // 2
    term = comb(colluders, half) * comb(honest, size - half)  # Juries with exactly `half` colluders.
    tail = 0
    for inside in range(half, min(colluders, size) + 1):
        tail += term
        # The next term by the ratio of neighbouring ones: exact, and much faster than two binomials.
        term = term * (colluders - inside) * (size - inside) // ((inside + 1) * (honest - size + inside + 1))
    return tail << -JURY_FAILURE_LOG2 <= comb(clients, size)
