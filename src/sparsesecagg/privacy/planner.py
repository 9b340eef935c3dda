"""Pick the settings of a round of the committee pattern from what it has to promise.

The search is short because everything pulls one way. A smaller share α = a/b of the model means less to send and
smaller committees; smaller committees have fewer contributors per word, so words may be shorter. What holds against
it is privacy alone: the planner takes the least share whose tail bound stays within the allowed probability, then the
shortest word that keeps the resolution. Committees of a small cohort are no smaller than those of a large one, so it
needs a large α, and saves mainly by its short words.

What the plan promises, per round, for an honest-but-curious server with the colluding users:

    privacy_failure_log2            some block has fewer than T honest survivors, or sparse masks leave them in
                                    several parts, or colluders open a secret
    abort_probability               the round fails: a block below `min_survivors`, or too few shares
    lying_server_failure_log2       the first, if the server also lies about who dropped out

All three are upper bounds. `min_survivors` counts users, not honest ones: a client can't tell them apart.
It is set as high as the abort probability allows, but not above T + A, where even all colluders in one
committee don't help.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np

from sparsesecagg.crypto.shamir import SHARE_SIZE
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word, packed_size
from sparsesecagg.patterns import SMALLEST_COMMITTEE, Committee, PatternSettings
from sparsesecagg.patterns.committee import LARGEST_DENOMINATOR
from sparsesecagg.privacy.graph_tails import log_disconnected
from sparsesecagg.privacy.plan import LOWEST_FAILURE_LOG2, Goal, Nearest, Plan
from sparsesecagg.privacy.sharing import Cohort, choose_sharing
from sparsesecagg.privacy.tails import (
    IMPOSSIBLE,
    distinct_blocks,
    independent_or_better,
    log_difference,
    log_forced_failure,
    log_privacy_failure,
    log_refusal,
    log_sum,
    log_union,
)
from sparsesecagg.protocol.messages import SEALED_SIZE
from sparsesecagg.protocol.parameters import MAX_CLIENTS, RoundParameters

ABORT_TARGET: Final = 1e-3
"""Rounds that may fail for lack of survivors, where there is a choice; half for blocks, half for shares."""
MARGIN: Final = math.log(2)
"""One bit above the computed bound, which is nearly exact: real dropouts are not quite independent, and whoever
counts failures over some thousand rounds should not find more of them than were promised."""
UPLOAD_HEADER: Final = 64
"""More than the UPLOAD message adds to its words."""


def plan_round(goal: Goal) -> Plan:
    """Return the settings with the smallest upload that keep the goal, or say why there are none."""
    share = _least_share(goal)
    if share is None:
        return _not_feasible(goal)
    bits = _shortest_word(goal, share)
    draft = RoundParameters.create(
        clients=goal.clients,
        dim=goal.dim,
        alpha=float(share),
        stripes=goal.stripes,
        modulus_bits=bits,
        clip=goal.clip,
    )
    stripes = _stripes(goal, share)
    log_thin = _log_thin(goal, share, stripes)
    sharing = choose_sharing(
        Cohort(goal.clients, goal.colluders, goal.dropout),
        log_budget=log_difference(goal.log_budget, log_thin),
        abort_budget=ABORT_TARGET / 2,
        log_apart=lambda degree: _log_apart(goal, share, stripes, degree),
    )
    min_survivors = _min_survivors(goal, share, stripes)
    log_forced = log_forced_failure(
        goal.clients,
        goal.colluders,
        share,
        stripes,
        min_survivors=min_survivors,
        anonymity=goal.min_anonymity,
    )
    upload = UPLOAD_HEADER + packed_size(stripes * share.numerator * draft.width, bits)
    failure = _log2_of_sum(log_thin, sharing.log_exposed, sharing.log_apart)
    abort = independent_or_better(
        (log_refusal(goal.clients, share, goal.dropout, min_survivors), distinct_blocks(share, stripes)),
        (sharing.log_missing, sharing.missing_events),
    )
    degree = sharing.neighbours or goal.clients - 1
    # A liar takes a sparse mask graph apart: it calls two runs of neighbours on the ring dropped.
    log_torn = 0.0 if degree < math.ceil(goal.clients * share) - 1 else IMPOSSIBLE
    return Plan(
        feasible=True,
        reason=_why(goal, share, stripes, failure, abort),
        goal=goal,
        privacy_failure_log2=failure,
        alpha=float(share),
        share=share,
        stripes=stripes,
        committee_size=int(goal.clients * share),
        threshold=sharing.threshold,
        neighbours=sharing.neighbours,
        min_survivors=min_survivors,
        modulus_bits=bits,
        quantisation_levels=draft.quantizer.limit,
        upload_bytes=upload,
        share_bytes=SEALED_SIZE * degree + SHARE_SIZE * (degree + 1),
        compression_vs_secagg=(UPLOAD_HEADER + 4 * goal.dim) / upload,
        abort_probability=abort,
        lying_server_failure_log2=_log2_of_sum(log_forced, sharing.log_split, log_torn),
    )


def plan_each(goal: Goal, anonymities: Iterable[int]) -> list[Plan]:
    """Return a plan for each of the wanted anonymities: what privacy costs."""
    return [plan_round(replace(goal, min_anonymity=anonymity)) for anonymity in anonymities]


def _stripes(goal: Goal, share: Fraction) -> int:
    """Return the stripes that a round will have: the wanted ones, or fewer where the model is too small."""
    settings = PatternSettings(goal.clients, goal.dim, round(2**32 * share), None, goal.stripes)
    return Committee.make_layout(settings).blocks // share.denominator


def _log_thin(goal: Goal, share: Fraction, stripes: int) -> float:
    """Bound ln P[some block has too few honest survivors], with the margin."""
    computed = log_privacy_failure(
        goal.clients, goal.colluders, share, stripes, dropout=goal.dropout, anonymity=goal.min_anonymity
    )
    return min(0.0, computed + MARGIN)


def _log_apart(goal: Goal, share: Fraction, stripes: int, degree: int) -> float:
    """Bound ln P[the honest survivors of some committee are no longer joined by masks]."""
    largest = math.ceil(goal.clients * share)
    one = log_disconnected(largest, degree, goal.dropout, goal.colluders, population=goal.clients)
    return log_union(one, distinct_blocks(share, stripes))


def _least_share(goal: Goal) -> Fraction | None:
    """Return the least share of the model that keeps the promise, or None if even the whole of it does not."""

    def keeps(share: Fraction) -> bool:
        return _log_thin(goal, share, _stripes(goal, share)) <= goal.log_budget

    if not keeps(Fraction(1)):
        return None
    # Smaller committees fail more often, and there are more of them: the bound grows with G.
    least = max(SMALLEST_COMMITTEE, goal.min_anonymity)
    low, high = 1, goal.clients // least
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if keeps(Fraction(1, middle)) else (low, middle - 1)
    # Below 1/(G+1), which fails, other fractions have smaller committees and more of them, and fail too.
    finer = {Fraction(a, b) for b in range(1, LARGEST_DENOMINATOR + 1) for a in range(b // (low + 1) + 1, -(-b // low))}
    return next((share for share in sorted(finer) if share * goal.clients >= least and keeps(share)), Fraction(1, low))


def _shortest_word(goal: Goal, share: Fraction) -> int:
    contributors = math.ceil(goal.clients * share)
    for bits in WORD_BITS:
        if Word.of(bits).largest // contributors >= goal.steps_per_side:
            return bits
    room = Word.of(WORD_BITS[-1]).largest // contributors
    if room >= goal.levels:
        option, most = "clip", room // goal.levels
    else:
        option, most = "levels", max(1, math.floor(room / max(1.0, goal.clip)))
    raise InvalidInput(
        option,
        f"must be at most {most} for the sum of {contributors} contributors to fit the longest "
        f"word at {goal.levels} levels and a clip of {goal.clip:g}",
    )


def _min_survivors(goal: Goal, share: Fraction, stripes: int) -> int:
    size = int(goal.clients * share)
    low = max(2, goal.min_anonymity)
    high = max(low, min(size, goal.min_anonymity + goal.colluders))
    while low < high:
        middle = (low + high + 1) // 2
        one = log_refusal(goal.clients, share, goal.dropout, middle)
        acceptable = independent_or_better((one, distinct_blocks(share, stripes))) <= ABORT_TARGET / 2
        low, high = (middle, high) if acceptable else (low, middle - 1)
    return low


def _not_feasible(goal: Goal) -> Plan:
    """Everybody in one committee is the most private round there is, and it is not private enough."""

    def log_failure(clients: int, anonymity: int) -> float:
        return _log_thin(replace(goal, clients=clients, min_anonymity=anonymity), share=Fraction(1), stripes=1)

    # Honest users never become fewer as users are added, so both searches are over monotone conditions.
    clients = _first(goal.clients, MAX_CLIENTS, lambda n: log_failure(n, goal.min_anonymity) <= goal.log_budget)
    too_much = _first(1, goal.min_anonymity, lambda t: log_failure(goal.clients, t) > goal.log_budget)
    reachable = _log2_of_sum(log_failure(goal.clients, goal.min_anonymity))
    nearest = Nearest(
        clients=clients,
        min_anonymity=too_much - 1 if too_much is not None and too_much > 1 else None,
        failure_log2=_tenth(reachable) if _tenth(reachable) < 0 else None,
    )
    return Plan(False, _why_not(goal, reachable, nearest), goal, reachable, nearest=nearest)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """Return the smallest number in [low, high] from which on a monotone condition holds."""
    if not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _log2_of_sum(*logs: float) -> float:
    """Return log2 Σ e^logs, not above 0 and not below what can be written down."""
    total = log_sum(np.array(logs))
    return min(0.0, max(LOWEST_FAILURE_LOG2, total / math.log(2)))


def _tenth(log2: float) -> float:
    """Round up to a tenth, so that a bound stays one."""
    return math.ceil(log2 * 10) / 10


def _why(goal: Goal, share: Fraction, stripes: int, failure_log2: float, abort: float) -> str:
    size = int(goal.clients * share)
    blocks = distinct_blocks(share, stripes)
    who = f"committees of {size}" if share < 1 else f"all {size} users together"
    where = f"all {blocks} blocks" if blocks > 1 else "every block"
    sentence = (
        f"{who} keep {goal.min_anonymity} honest survivors in {where}, "
        f"except with probability 2^{_tenth(failure_log2):g} per round"
    )
    if abort > ABORT_TARGET:
        sentence += f"; up to {abort:.2g} of the rounds fail for lack of survivors"
    return sentence


def _why_not(goal: Goal, reachable: float, nearest: Nearest) -> str:
    honest = goal.clients - goal.colluders
    if goal.min_anonymity > honest:
        why = f"only {honest} of {goal.clients} users are honest"
    else:
        why = (
            f"even one committee of all {goal.clients} users, {goal.colluders} of them colluding, "
            f"has fewer than {goal.min_anonymity} honest survivors with a probability of up to 2^{_tenth(reachable):g}"
        )
    changes = []
    if nearest.clients is not None:
        changes.append(f"{nearest.clients} clients")
    if nearest.min_anonymity is not None:
        changes.append(f"an anonymity of {nearest.min_anonymity}")
    if nearest.failure_log2 is not None:
        changes.append(f"a failure probability of 2^{nearest.failure_log2:g}")
    return f"{why}; feasible would be {' or '.join(changes)}" if changes else why
