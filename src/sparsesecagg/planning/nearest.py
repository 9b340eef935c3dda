"""What would be feasible where a goal is not, changing one thing at a time, and a sentence that says why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from sparsesecagg.planning.candidates import lines, make_groups, worst_failure_log2
from sparsesecagg.planning.plan import Goal, Nearest

MOST_CLIENTS_TRIED: Final = 1 << 16
"""A goal that so many users can't meet is called out of reach of any number."""


def nearest_feasible(goal: Goal) -> tuple[float, Nearest]:
    """Return the smallest failure found, as log2, and the nearest feasible settings."""
    reachable = min(_failures(goal), default=0.0)
    loosened = tenth(reachable)
    return reachable, Nearest(
        clients=_enough_clients(goal),
        min_anonymity=_largest(goal.min_anonymity - 1, 1, lambda count: replace(goal, min_anonymity=count)),
        failure_log2=loosened if loosened < 0 and is_feasible(replace(goal, failure_log2=loosened)) else None,
        dropout=_hundredths(goal.dropout, lambda rate: replace(goal, dropout=rate)),
        colluding=_hundredths(goal.colluding, lambda rate: replace(goal, colluding=rate)),
        server="curious" if goal.server == "lying" and is_feasible(replace(goal, server="curious")) else None,
    )


def is_feasible(goal: Goal) -> bool:
    """Tell whether the largest groups of some line keep the goal: those that the planner starts from."""
    return any(found <= goal.failure_log2 for found in _failures(goal))


def tenth(log2: float) -> float:
    """Round up to a tenth, so that a bound stays one."""
    return math.ceil(log2 * 10) / 10


def why_not(goal: Goal, reachable: float, nearest: Nearest) -> str:
    """Return the reason and the changes that would do, in one sentence."""
    changes = []
    if nearest.clients is not None:
        changes.append(f"{nearest.clients} clients")
    if nearest.min_anonymity is not None:
        changes.append(f"an anonymity of {nearest.min_anonymity}")
    if nearest.failure_log2 is not None:
        changes.append(f"a failure probability of 2^{nearest.failure_log2:g}")
    if nearest.dropout is not None:
        changes.append(f"a dropout of {nearest.dropout:g}")
    if nearest.colluding is not None:
        changes.append(f"{nearest.colluding:g} colluding")
    if nearest.server is not None:
        changes.append(f"a {nearest.server} server")
    reason = _cause(goal, reachable)
    return f"{reason}; feasible would be {' or '.join(changes)}" if changes else reason


def _cause(goal: Goal, reachable: float) -> str:
    honest = goal.clients - goal.colluders
    if goal.min_anonymity > honest:
        return f"only {honest} of {goal.clients} users are honest"
    if _is_hopeless(goal):
        return (
            f"with a dropout of {goal.dropout:g} a user takes part in {goal.availability:.0%} of the rounds, but more "
            f"than {_share_needed(goal):.0%} of a pod must{_against(goal)}: no number of users makes that possible"
        )
    chance = f"with a probability of up to 2^{tenth(reachable):g}" if tenth(reachable) < 0 else "at these dropouts"
    return (
        f"even the largest groups of {goal.clients} users{_against(goal)} can be opened with fewer than "
        f"{goal.min_anonymity} honest users {chance}"
    )


def _against(goal: Goal) -> str:
    if goal.server == "curious":
        return f" with {goal.colluders} colluding"
    return f" with {goal.colluders} of {goal.population} colluding and a server that lies"


def _share_needed(goal: Goal) -> float:
    """Return the fraction of a pod that must take part: 2t > P + c_P for a lying server, 2t > P for any."""
    return (1 + goal.colluders / goal.population) / 2 if goal.server == "lying" else 0.5


def _is_hopeless(goal: Goal) -> bool:
    """Tell whether even the average of a pod is too little."""
    return goal.availability <= _share_needed(goal)


def _failures(goal: Goal) -> Iterator[float]:
    """Yield how safe the largest groups of each line are, as log2."""
    # With CONFIRM a lying server can do less, never more.
    confirm = goal.server == "lying" and goal.confirm is not False
    for shape in dict.fromkeys(sorted(line(1) for line, _ in lines(goal))):
        groups = make_groups(goal, shape)
        if groups is not None:
            yield worst_failure_log2(goal, groups, confirm=confirm)


def _enough_clients(goal: Goal) -> int | None:
    """Return the number of users from which on, within the grain of whole users, the goal is feasible."""
    if _is_hopeless(goal):
        return None
    low = high = goal.clients
    while not is_feasible(replace(goal, clients=high)):
        if high >= MOST_CLIENTS_TRIED:
            return None
        low, high = high + 1, min(2 * high, MOST_CLIENTS_TRIED)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_feasible(replace(goal, clients=middle)) else (middle + 1, high)
    return low


def _largest(high: int, low: int, change: Callable[[int], Goal]) -> int | None:
    """Return the largest number in [low, high] whose goal is feasible, if less is easier."""
    if high < low or not is_feasible(change(low)):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_feasible(change(middle)) else (low, middle - 1)
    return low


def _hundredths(rate: float, change: Callable[[float], Goal]) -> float | None:
    """Return the largest smaller rate, in hundredths, whose goal is feasible."""
    found = _largest(math.ceil(100 * rate - 1e-9) - 1, 0, lambda percent: change(percent / 100))
    return None if found is None else found / 100
