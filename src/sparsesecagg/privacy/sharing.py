"""Choose who holds shares: the degree of the share graph and the threshold.

A secret of one user is shared among `degree` neighbours and itself. The threshold has to lie between what
colluding holders can muster and what survives:

- more than half of the holders, so that no two disjoint groups of holders can open two different things;
- colluding holders reach it with at most the allowed probability (for any honest user);
- better still, a server that tells holders different stories does not reach it either;
- the surviving neighbours reach it except with the allowed abort probability (for every user).

A round uses the same degree for the masks inside a committee, so they must stay connected among honest survivors too.

Few neighbours save bytes (a share costs 124 bytes to give and to open), many keep the random share of
colluders near its mean. See graph_tails.py for the probabilities and their source.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sparsesecagg.privacy.graph_tails import (
    log_holders_missing,
    log_shares_exposed,
    log_shares_split,
    log_too_few_survivors,
)
from sparsesecagg.privacy.tails import (
    IMPOSSIBLE,
    ROUNDING,
    independent_or_better,
    log_difference,
    log_hypergeometric,
)

# Standing up to a lying server may cost this many times the neighbours; beyond it, the honest-but-curious
# server of the paper is what the share graph is made for.
_WORTH: Final = 3
# Up to here a complete graph costs a user at most 16 kB, and stands more dropouts than were planned for.
_SMALL_COHORT: Final = 128


@dataclass(frozen=True)
class Cohort:
    """The users of a round, as far as shares are concerned."""

    clients: int
    colluders: int
    dropout: float


@dataclass(frozen=True)
class Sharing:
    """A share graph and threshold, with what can go wrong."""

    neighbours: int | None
    """Degree of the share graph; None for a complete one."""
    threshold: int
    log_apart: float
    """Bound on ln P[the masks of some committee fall apart]."""
    log_exposed: float
    """Bound on ln P[colluders alone open both secrets of an honest user]."""
    log_split: float
    """The same for colluders and a server that lies about who dropped out."""
    log_missing: float
    """ln P[too few shares] of one event, of which there are `missing_events`."""
    missing_events: int

    @property
    def abort_probability(self) -> float:
        """Bound on P[some secret can't be opened]."""
        return independent_or_better((self.log_missing, self.missing_events))


def choose_sharing(
    cohort: Cohort, *, log_budget: float, abort_budget: float, log_apart: Callable[[int], float]
) -> Sharing:
    """Return the share graph for a cohort, k-regular where that at least halves the shares, else complete.

    `log_budget` bounds ln P[exposed or apart], `abort_budget` P[too few shares]. `log_apart` bounds ln P[the masks of
    some committee fall apart] for a degree.
    """

    def fits(degree: int, lying: bool) -> Sharing | None:
        apart = log_apart(degree)
        if apart > log_budget:
            return None
        sharing = _with_degree(cohort, degree, log_difference(log_budget, apart), lying)
        if sharing is None or sharing.abort_probability > abort_budget:
            return None
        return replace(sharing, log_apart=apart)

    most = (cohort.clients - 1) // 2 if cohort.clients > _SMALL_COHORT else 0
    sparse = _smallest_degree(lambda degree: fits(degree, lying=False), most)
    if sparse is not None and sparse.neighbours is not None:
        worth = min(most, _WORTH * sparse.neighbours)
        return _smallest_degree(lambda degree: fits(degree, lying=True), worth) or sparse
    complete = fits(cohort.clients - 1, lying=True) or _with_degree(cohort, cohort.clients - 1, log_budget, False)
    if complete is None:
        # Fewer than half collude, so a majority is always out of their reach.
        raise AssertionError("a complete share graph always has a threshold")
    return complete


def _smallest_degree(fits: Callable[[int], Sharing | None], most: int) -> Sharing | None:
    """Return the sharing of the smallest even degree up to `most` that fits: doubling, then bisection."""
    low = 1  # Half degrees.
    most //= 2
    high = low
    while (found := fits(2 * high) if high <= most else None) is None:
        if high >= most:
            return None
        low, high = high + 1, min(2 * high, most)
    while low < high:
        middle = (low + high) // 2
        if (better := fits(2 * middle)) is not None:
            found, high = better, middle
        else:
            low = middle + 1
    return found


def _with_degree(cohort: Cohort, degree: int, log_budget: float, lying: bool) -> Sharing | None:
    """Return the lowest threshold out of the colluders' reach, or None if there is none."""
    holders = degree + 1
    honest = max(1, cohort.clients - cohort.colluders)
    colluding = log_hypergeometric(cohort.clients - 1, cohort.colluders, degree)
    at_least = np.logaddexp.accumulate(colluding[::-1])[::-1]
    allowed = np.flatnonzero(at_least + math.log(honest) + ROUNDING <= log_budget)
    out_of_reach = int(allowed[0]) if len(allowed) else holders
    threshold = -(-(out_of_reach + holders) // 2) if lying else out_of_reach
    threshold = max(threshold, holders // 2 + 1)
    # A dropped user's own share is lost with it, so more than its neighbours can't be asked for.
    if threshold > degree:
        return None
    complete = degree == cohort.clients - 1
    missing = (
        log_too_few_survivors(cohort.clients, cohort.dropout, threshold)
        if complete
        else log_holders_missing(degree, cohort.dropout, threshold)
    )
    return Sharing(
        neighbours=None if complete else degree,
        threshold=threshold,
        log_apart=IMPOSSIBLE,
        log_exposed=log_shares_exposed(cohort.clients, cohort.colluders, degree, threshold),
        log_split=log_shares_split(cohort.clients, cohort.colluders, degree, threshold),
        log_missing=missing,
        missing_events=1 if complete else cohort.clients,
    )
