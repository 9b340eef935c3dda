"""Pick groups, threshold and words for a run from what it has to promise. Exact tails; nothing is sampled.

Everybody is one group up to 128 users; larger cohorts are cut into groups of at most 100, and into larger ones only
where the wanted anonymity needs them. The threshold starts at the protocol's default, as high as dropouts allow, and is
raised where the anonymity needs it: a higher threshold protects more, and more rounds fail. With differential privacy
groups are as large as can be, up to 1,000 users, because noise grows with their number. So a goal is missed for one of
three reasons. *Privacy*: not even a threshold of everybody would keep it. *Availability*: some threshold would, and too
few users stay to meet it. *Noise*: nothing could be learnt under what (ε, δ) takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite
from typing import Final, NamedTuple

from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.groups import group_count, group_sizes
from sparsesecagg.planning.message_sizes import default_levels, message_bytes, secagg_upload, shortest_word
from sparsesecagg.planning.noise import LARGEST_NORM, NOISY_GROUP, DifferentialPrivacy, NoisePlan, plan_noise, rounded
from sparsesecagg.planning.plan import LOWEST_FAILURE_LOG2, Goal, Plan
from sparsesecagg.privacy.anonymity import (
    Promise,
    availability,
    available_threshold,
    colluders_in_a_group,
    default_threshold,
    failed_rounds,
    honest_in_sum,
    promise,
)
from sparsesecagg.protocol.parameters import Parameters, RoundOptions

LOST_ROUNDS: Final = (0.05, 0.1)
"""The fraction of a group's rounds that a plan may lose: the first if some groups can, never more than the second."""
LARGEST_GROUP: Final = 2048
"""Larger ones are not planned: every user would send and read a hundred kilobytes of shares."""
_GROWTH: Final = 1.1
"""Sizes that are tried grow by this factor."""
_MOST_EPSILON: Final = 20
"""No plan proposes more: it would promise little."""


class _Choice(NamedTuple):
    """Groups and a threshold that keep the goal."""

    sizes: tuple[int, ...]
    threshold: int
    promise: Promise
    failed: float
    """Of the smallest group's rounds."""


def plan_round(goal: Goal) -> Plan:
    """Return the settings that keep the goal with the smallest groups, or say why there are none."""
    choice = _choose(goal)
    if choice is None:
        return Plan(goal, False, f"{_why_not(goal)}; {_remedies(goal)}")
    options = _options(goal, choice)
    noise = _noise(goal, choice, options)
    if noise is not None:
        if noise.problem is not None:
            return Plan(goal, False, f"{noise.problem}; {_quieter(goal, noise)}", noise=noise)
        options = replace(
            options,
            modulus_bits=noise.modulus_bits,
            clip_norm=noise.goal.clip,
            noise_multiplier=noise.multiplier,
        )
    cost = message_bytes(Parameters.create(goal.clients, goal.dim, options))
    return Plan(
        goal=goal,
        feasible=True,
        reason=_why(goal, choice) + (f"; {_why_noise(noise)}" if noise else ""),
        options=options,
        groups=len(choice.sizes),
        group_size=max(choice.sizes),
        threshold=choice.threshold,
        anonymity=choice.promise.anonymity,
        colluders=choice.promise.colluders,
        upload_bytes=cost.upload,
        all_bytes_sent=cost.all_sent,
        all_bytes_received=cost.all_received,
        compression_vs_secagg=secagg_upload(goal.dim) / cost.upload,
        privacy_failure_log2=max(LOWEST_FAILURE_LOG2, choice.promise.failure_log2),
        abort_probability=choice.failed,
        noise=noise,
    )


def _options(goal: Goal, choice: _Choice) -> RoundOptions:
    """Return the options of a round, without noise."""
    sizes, largest = choice.sizes, max(choice.sizes)
    return RoundOptions(
        alpha=DEFAULT_ALPHA if goal.alpha is None else goal.alpha,
        group_size=None if group_count(goal.clients, None) == len(sizes) == 1 else largest,
        threshold=choice.threshold,
        dropout=goal.dropout,
        colluding=goal.colluding,
        modulus_bits=shortest_word(largest, goal.levels or default_levels(min(sizes))),
        clip=goal.clip,
    )


def _noise(goal: Goal, choice: _Choice, options: RoundOptions) -> NoisePlan | None:
    """Return the noise that a run of these groups takes; None without differential privacy."""
    if goal.noise is None:
        return None
    params = Parameters.create(goal.clients, goal.dim, options)
    return plan_noise(goal.noise, params, choice.promise.anonymity, goal.failure_log2)


def _is_feasible(goal: Goal) -> bool:
    choice = _choose(goal)
    if choice is None:
        return False
    try:
        noise = _noise(goal, choice, _options(goal, choice))
    except InvalidInput:  # Such as a slice of a smaller model that has no coordinate.
        return False
    return noise is None or noise.problem is None


def _choose(goal: Goal) -> _Choice | None:
    """Return the smallest groups, with the lowest threshold, that keep the goal and lose few rounds."""
    choices = [choice for sizes in _cuts(goal) if (choice := _threshold(goal, sizes))]
    for allowed in LOST_ROUNDS:
        for choice in choices:
            if choice.failed <= allowed:
                return choice
    return None


def _cuts(goal: Goal) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of groups to try, small groups first; noise begins with large ones."""
    first = goal.group_size if goal.noise is None else goal.group_size or min(goal.clients, NOISY_GROUP)
    count = group_count(goal.clients, first)
    yield group_sizes(goal.clients, count)
    while goal.group_size is None and count > 1:
        size = max(math.ceil(_GROWTH * goal.clients / count), -(-goal.clients // (count - 1)))
        if size > LARGEST_GROUP:
            return
        count = group_count(goal.clients, size)
        yield group_sizes(goal.clients, count)


def _threshold(goal: Goal, sizes: tuple[int, ...]) -> _Choice | None:
    """Return the lowest threshold, from the default on, that keeps the goal; None if not even everybody would."""
    smallest, largest = min(sizes), max(sizes)
    if goal.server == "malicious":
        low = default_threshold(smallest, largest, goal.dropout, goal.colluding)
    else:
        low = min(smallest, max(available_threshold(smallest, goal.dropout), largest // 2 + 1))
    most = colluders_in_a_group(sizes, goal.colluders, goal.failure_log2)

    def is_enough(threshold: int) -> bool:
        kept = (honest_in_sum(size, threshold, min(most, size), goal.server) for size in (smallest, largest))
        return min(kept) >= goal.min_anonymity

    if not is_enough(high := smallest):
        return None
    while low < high:  # A higher threshold never keeps less.
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    kept = promise(sizes, low, goal.colluders, goal.server, goal.failure_log2)
    return _Choice(sizes, low, kept, failed_rounds(smallest, low, goal.dropout))


def _why(goal: Goal, choice: _Choice) -> str:
    """Return what is kept, and what is lost to dropouts, in one sentence."""
    sizes, threshold, kept, failed = choice
    size, several = min(sizes), len(sizes) > 1
    who = f"{len(sizes)} groups of {size}{' or more' if max(sizes) > size else ''}" if several else "one group"
    server = "even if the server lies" if goal.server == "malicious" else "against a server that follows the protocol"
    chance = (
        f", except with probability 2^{math.ceil(10 * kept.failure_log2) / 10:g} per run"
        if isfinite(kept.failure_log2)
        else ""
    )
    lost = f"a group loses {failed:.1%} of its rounds" if several else f"{failed:.1%} of the rounds fail"
    remedy = "; a lower dropout, more users or a semi-honest server lose fewer" if failed > LOST_ROUNDS[0] else ""
    return (
        f"privacy: {who} with a threshold of {threshold} keep{'' if several else 's'} {kept.anonymity} honest users in "
        f"every sum, {server}, with {goal.colluders} of {goal.clients} users colluding{chance}; availability: {lost}, "
        f"because fewer than {threshold} of {size} users stay{remedy}"
    )


def _why_not(goal: Goal) -> str:
    """Return the cause: of the largest groups that were tried, privacy or availability."""
    sizes = list(_cuts(goal))[-1]
    size, honest = min(sizes), goal.clients - goal.colluders
    if goal.min_anonymity > honest:
        return f"privacy: only {honest} of {goal.clients} users are honest"
    choice = _threshold(goal, sizes)
    against = f"against a {goal.server} server with {goal.colluders} of {goal.clients} users colluding"
    if choice is None:
        kept = promise(sizes, size, goal.colluders, goal.server, goal.failure_log2)
        return (
            f"privacy: even if all users of a group stay, {kept.anonymity} honest users are in a sum, since a group of "
            f"{size} may have {kept.colluders} colluding users ({against})"
        )
    staying = math.floor(size * availability(goal.dropout))
    return (
        f"availability: too few users stay, about {staying} of {size} at a dropout of {goal.dropout:g}, while "
        f"{goal.min_anonymity} honest users in every sum {against} take a threshold of {choice.threshold}, "
        f"which {choice.failed:.0%} of the rounds would miss"
    )


def _remedies(goal: Goal) -> str:
    """Return what would be feasible, changing one thing at a time."""
    found = []
    if goal.server == "malicious" and _is_feasible(replace(goal, server="semi-honest")):
        found.append("--server semi-honest")
    dropout = _largest(math.ceil(100 * goal.dropout) - 1, 0, lambda rate: replace(goal, dropout=rate / 100))
    if dropout is not None:
        found.append(f"--dropout {dropout / 100:g}")
    anonymity = _largest(goal.min_anonymity - 1, 1, lambda count: replace(goal, min_anonymity=count))
    if anonymity is not None:
        found.append(f"--min-anonymity {anonymity}")
    larger = [goal.clients << doublings for doublings in range(1, 7) if goal.clients << doublings <= goal.most_clients]
    enough = next((clients for clients in larger if _is_feasible(replace(goal, clients=clients))), None)
    if enough is not None:
        found.append(f"--clients {enough}")
    return f"feasible: {' or '.join(found)}" if found else "no other server, dropout, anonymity or cohort alone helps"


def _quieter(goal: Goal, noise: NoisePlan) -> str:
    """Return what would be feasible with noise, changing one thing at a time, the cheapest first."""
    asked, excess = noise.goal, noise.norm_in_clips / LARGEST_NORM

    def changed(**changes: float) -> Goal:
        return replace(goal, noise=DifferentialPrivacy(**{**vars(asked), **changes}))

    found = []
    rounds = _largest(asked.rounds - 1, 1, lambda count: changed(rounds=count))
    if rounds is not None:
        found.append(f"--rounds {rounds}")
    dim = int(rounded(max(1.0, goal.dim / excess**2), 2, up=False))
    if dim < goal.dim and _is_feasible(replace(goal, dim=dim)):
        found.append(f"--dim {dim}")
    clients = int(rounded(goal.clients * excess, 2, up=True))
    if goal.clients < clients <= goal.most_clients and _is_feasible(replace(goal, clients=clients)):
        found.append(f"--clients {clients}")
    tenths = _largest(-math.floor(10 * asked.epsilon) - 1, -10 * _MOST_EPSILON, lambda k: changed(epsilon=-k / 10))
    if tenths is not None:
        found.append(f"--epsilon {-tenths / 10:g}")
    if not found:
        return "no smaller number of rounds, smaller model, larger cohort or larger epsilon alone helps"
    return f"feasible: {' or '.join(found)}; adapters are a way to a smaller model"


def _why_noise(noise: NoisePlan) -> str:
    """Return what noise promises and costs, in one clause."""
    return (
        f"noise: {noise.what}, with {noise.std_vs_trusted_server:.2f} times the standard deviation of a trusted "
        f"server, whose noise would have a norm of {noise.norm_in_clips:.2g} clips in the mean"
    )


def _largest(high: int, low: int, change: Callable[[int], Goal]) -> int | None:
    """Return the largest number in [low, high] whose goal is feasible, if less is easier."""
    if high < low or not _is_feasible(change(low)):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _is_feasible(change(middle)) else (low, middle - 1)
    return low
