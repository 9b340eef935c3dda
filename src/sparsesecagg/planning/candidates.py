"""Groups that a goal could be met with, the thresholds that its dropouts allow them, and how safe they are.

Candidates lie on *lines*: pods of one, two, three, … committees each, or everybody in one, two or three pods. Along a
line groups become smaller and more; each is safe up to a point, but for small steps back, because thresholds are
integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from sparsesecagg.privacy.anonymity import Structure, failure_log2
from sparsesecagg.patterns.sizes import scaled
from sparsesecagg.privacy.tails import log_binomial_below
from sparsesecagg.planning.plan import LOWEST_FAILURE_LOG2, SMALLEST_COHORT, Goal

THIN_COMMITTEE: Final = 0.01
"""A committee may have fewer than `min_survivors` in so many of its rounds; it loses its slices then."""
FAILED_POD: Final = 0.001
"""A pod may have fewer users than its threshold in so many rounds; it loses the slices of all its committees."""
COMMITTEES_PER_POD: Final = (2, 3, 4, 1, 5, 6, 8, 10, 12, 16)
PODS_OF_EVERYBODY: Final = (1, 2, 3)

Shape = tuple[int, int]
"""Committees and pods."""
Line = tuple[Callable[[int], Shape], int]
"""The shape at a place of the line, and the last place."""


def lines(goal: Goal) -> Iterator[Line]:
    """Yield the lines of candidates; all begin at place 1 with their largest groups."""
    most = min(goal.clients // max(SMALLEST_COHORT, goal.min_anonymity), goal.dim)
    for each in COMMITTEES_PER_POD:
        if each <= most:
            yield (lambda place, each=each: (each * place, place)), most // each  # type: ignore[misc]
    for pods in PODS_OF_EVERYBODY:
        if pods <= most:
            yield (lambda place, pods=pods: (pods * place, pods)), most // pods  # type: ignore[misc]


def make_groups(goal: Goal, shape: Shape) -> Structure | None:
    """Return groups of this shape with the highest thresholds that the dropouts allow; None if those are too low."""
    committees, pods = shape
    sizes = Structure.even(goal.clients, committees, pods, min_survivors=1, threshold=1)
    survivors = highest_demand(goal.availability, THIN_COMMITTEE, tuple({size for size, _ in sizes.kinds}))
    threshold = highest_demand(goal.availability, FAILED_POD, tuple({size for _, size in sizes.kinds}))
    # More than half of a pod in any case; and a sum needs two users at least, to be one.
    if survivors < max(2, goal.min_anonymity) or 2 * threshold <= sizes.smallest_pod:
        return None
    return Structure(sizes.sizes, survivors, threshold)


def worst_failure_log2(goal: Goal, groups: Structure, *, confirm: bool) -> float:
    """Bound the failure of a run, as log2, however many of the users that may be excluded are.

    Pods keep their planned size when users are excluded, and become fewer (`Structure.among`). So the planned sizes and
    numbers, with all colluders among the smallest population, are the worst case. Where the population is smaller than
    one pod, committees become fewer. The worst case is then the smallest population, or the smallest one that
    leaves all committees no larger than planned: with more users there are more committees, but in proportion,
    while the chance of j colluders in one of them falls with the j-th power.
    """

    def at(groups: Structure, population: int) -> float:
        return failure_log2(
            groups,
            anonymity=goal.min_anonymity,
            colluders=goal.colluders,
            population=population,
            server=goal.server,
            confirm=confirm,
            dropout=goal.dropout,
        )

    smallest = goal.population
    if groups.largest_pod <= smallest:
        worst = at(groups, smallest)
    else:
        size = groups.smallest_committee
        smallest_full = min(goal.clients, -(-smallest // size) * size)
        worst = max(at(groups.among(clients), clients) for clients in (smallest, smallest_full, goal.clients))
    return max(LOWEST_FAILURE_LOG2, worst)


def last_safe(line: Line, safe: Callable[[Shape], bool]) -> Shape | None:
    """Return the last shape of the line that is safe; None if not even the first is."""
    shape, last = line
    if not safe(shape(1)):
        return None
    low, high = 1, last
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if safe(shape(middle)) else (low, middle - 1)
    # Thresholds are integers, so that slightly smaller groups may be safe again.
    further = range(min(last, low + low // 4 + 1), low, -1)
    return shape(next((place for place in further if safe(shape(place))), low))


@lru_cache(maxsize=1 << 14)
def chance_missed(size: int, available: float, needed: int) -> float:
    """Return P[fewer than `needed` of `size` users take part in a round]."""
    return math.exp(log_binomial_below(size, available, needed))


@lru_cache(maxsize=1 << 14)
def highest_demand(available: float, allowed: float, sizes: tuple[int, ...]) -> int:
    """Return the highest demand on the smallest group, scaled to the others, that each misses rarely enough."""
    smallest = min(sizes)
    low, high = 0, smallest
    while low < high:
        middle = (low + high + 1) // 2
        missed = max(chance_missed(size, available, scaled(middle, size, smallest)) for size in sizes)
        low, high = (middle, high) if missed <= allowed else (low, middle - 1)
    return low
