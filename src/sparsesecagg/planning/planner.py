"""Pick the groups, thresholds and words of a run of the committee pattern from what it has to promise.

More committees mean that a user sends less; only privacy objects, because committees become small. Larger pods leave a
lying server less room but cost shares and tags. So the planner looks at pods of one, two, three, … committees; for each
it takes as many groups as keep the promise, and of all these the one with the fewest bytes of all messages, sent and
received.

Thresholds follow from sizes: `min_survivors` is as high as the dropouts allow (missed in 1 % of a committee's rounds),
the threshold likewise (missed in 0.1 % of a pod's rounds). Higher ones protect better and cost nothing else.

CONFIRM lets a lying server do less, so that groups may be smaller, but it is a third exchange in every round. It is
left out if that costs at most a tenth more bytes. A curious server tells everybody the same anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from sparsesecagg.privacy.anonymity import DRAWS, Structure
from sparsesecagg.planning.candidates import (
    Line,
    Shape,
    chance_missed,
    last_safe,
    lines,
    make_groups,
    worst_failure_log2,
)
from sparsesecagg.planning.message_sizes import (
    FEWER_LEVELS,
    FRAMING,
    MessageBytes,
    default_levels,
    largest_sum,
    message_bytes,
    shortest_word,
)
from sparsesecagg.planning.nearest import nearest_feasible, tenth, why_not
from sparsesecagg.planning.plan import Goal, Plan

SERVED: Final = 1
"""Slices per user and round: a = 1 is the smallest share of the model that G committees allow."""
WORTH_AN_EXCHANGE: Final = 1.1
"""CONFIRM is planned only if rounds without it take more than so many times the bytes."""


@dataclass(frozen=True)
class _Choice:
    """Groups that keep the goal, and what they cost."""

    groups: Structure
    confirm: bool
    modulus_bits: int
    bytes: MessageBytes


def plan_round(goal: Goal) -> Plan:
    """Return the settings with the fewest bytes that keep the goal, or say why there are none."""
    choice = _choose(goal)
    if choice is None:
        reachable, nearest = nearest_feasible(goal)
        return Plan(False, why_not(goal, reachable, nearest), goal, reachable, nearest=nearest)
    groups, sizes = choice.groups, choice.bytes
    failure = worst_failure_log2(goal, groups, confirm=choice.confirm)
    largest = max(size for size, _ in groups.kinds)
    return Plan(
        feasible=True,
        reason=_why(goal, choice, failure),
        goal=goal,
        privacy_failure_log2=failure,
        groups=groups,
        alpha=SERVED / groups.committees,
        slices_per_user=SERVED,
        confirm=choice.confirm,
        modulus_bits=choice.modulus_bits,
        quantisation_levels=largest_sum(choice.modulus_bits) // largest,
        upload_bytes=sizes.sent["UPLOAD"],
        all_bytes_sent=sum(sizes.sent.values()),
        all_bytes_received=sum(sizes.received.values()),
        compression_vs_secagg=secagg_upload(goal.dim) / sizes.sent["UPLOAD"],
        abort_probability=_abort_probability(goal, groups),
    )


def plan_each(goal: Goal, anonymities: Iterable[int]) -> list[Plan]:
    """Return a plan for each of the wanted anonymities: what privacy costs."""
    return [plan_round(replace(goal, min_anonymity=anonymity)) for anonymity in anonymities]


def secagg_upload(dim: int) -> int:
    """Return the bytes of an upload of the whole model in 32-bit words."""
    return FRAMING + 4 * dim


def _choose(goal: Goal) -> _Choice | None:
    """Return the cheapest choice, without CONFIRM if that is hardly dearer."""
    if goal.server == "curious" or goal.confirm is not None:
        return _cheapest(goal, confirm=bool(goal.confirm))
    short, long = _cheapest(goal, confirm=False), _cheapest(goal, confirm=True)
    if short is None or long is None:
        return short or long
    return short if short.bytes.total <= WORTH_AN_EXCHANGE * long.bytes.total else long


def _cheapest(goal: Goal, *, confirm: bool) -> _Choice | None:
    """Return the choice with the fewest bytes, or None if no groups keep the goal."""

    @cache
    def groups_at(shape: Shape) -> Structure | None:
        groups = make_groups(goal, shape)
        if groups is None or worst_failure_log2(goal, groups, confirm=confirm) > goal.failure_log2:
            return None
        return groups

    choices = []
    for line in lines(goal):
        last = last_safe(line, lambda shape: groups_at(shape) is not None)
        shapes = [] if last is None else [last, *_in_shorter_words(goal, line, last)]
        choices += [_cost(goal, groups, confirm) for shape in shapes if (groups := groups_at(shape))]
    return min(choices, key=lambda choice: choice.bytes.total, default=None)


def _in_shorter_words(goal: Goal, line: Line, last: Shape) -> list[Shape]:
    """Return the shapes whose committees are just large enough for fewer levels, if those of `last` are too small."""
    if goal.levels is not None:
        return []
    shape, _ = line
    sizes = (size for size in FEWER_LEVELS if goal.clients // last[0] < size)
    places = (goal.clients // size // shape(1)[0] for size in sizes)
    return [shape(place) for place in places if place]


def _cost(goal: Goal, groups: Structure, confirm: bool) -> _Choice:
    """Return what groups cost a user of the largest committee and pod."""
    members = max(size for size, _ in groups.kinds)
    bits = shortest_word(members, goal.levels or default_levels(groups.smallest_committee), goal.clip)
    sizes = message_bytes(
        dim=goal.dim,
        committees=groups.committees,
        served=SERVED,
        modulus_bits=bits,
        committee_size=members,
        pod_size=groups.largest_pod,
        pod_committees=max(map(len, groups.sizes)),
        confirm=confirm,
        dropout=goal.dropout,
    )
    return _Choice(groups, confirm, bits, sizes)


def _abort_probability(goal: Goal, groups: Structure) -> float:
    """Bound the chance that a committee's slices are lost in a round: it is thin, or its pod fails."""
    return max(
        min(
            1.0,
            chance_missed(members, goal.availability, groups.survivors_of(members))
            + chance_missed(holders, goal.availability, groups.threshold_of(holders)),
        )
        for members, holders in groups.kinds
    )


def _why(goal: Goal, choice: _Choice, failure_log2: float) -> str:
    groups = choice.groups
    many = groups.committees > 1
    who = f"{groups.committees} committees of {groups.smallest_committee} or more" if many else "all users together"
    against = "even if the server lies" if goal.server == "lying" else "against a server that follows the protocol"
    excluded = goal.clients - goal.population
    allowance = f", with up to {excluded} users excluded" if excluded else ""
    return (
        f"{who} keep {goal.min_anonymity} honest users in every sum {against}, with {goal.colluders} users colluding"
        f"{allowance}, except with probability 2^{tenth(failure_log2):g} per run of up to {DRAWS} draws"
    )
