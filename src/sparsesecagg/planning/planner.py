"""Pick groups, threshold and words for a run from what it has to promise, a `Goal`. Exact tails; nothing is sampled.

Everybody is one group up to 128 users; larger cohorts are cut into groups of at most 100, and into larger ones only
where the wanted anonymity needs them. The threshold starts at the protocol's default, as high as dropouts allow, and is
raised where the anonymity needs it: a higher threshold protects more, and more rounds fail. With differential privacy
groups are as large as can be, up to 1,000 users, because noise grows with their number. So a goal is missed for one of
three reasons. *Privacy*: not even a threshold of everybody would keep it. *Availability*: some threshold would, and too
few users stay to meet it. *Noise*: a model would rarely learn under what (ε, δ) takes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

from sparsesecagg.crypto.identity import USUAL_COLLUDING
from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.errors import InvalidInput, plural, require, require_type
from sparsesecagg.patterns.groups import SMALLEST_GROUP, group_count, group_sizes
from sparsesecagg.planning.message_sizes import default_levels, message_bytes, secagg_upload, shortest_word
from sparsesecagg.planning.noise import (
    FAILURE_LOG2,
    LARGEST_NORM,
    NOISY_GROUP,
    DifferentialPrivacy,
    NoisePlan,
    plan_noise,
    rounded,
)
from sparsesecagg.privacy.anonymity import (
    Promise,
    ServerModel,
    availability,
    available_threshold,
    colluders_in_a_group,
    default_threshold,
    failed_rounds,
    honest_in_sum,
    planned_colluders,
    promise,
    require_server,
)
from sparsesecagg.protocol.parameters import MAX_CLIENTS, MAX_DIM, Parameters, RoundOptions, check_kinds
from sparsesecagg.protocol.policy import kept_by

LOST_ROUNDS: Final = (0.05, 0.1)
"""The fraction of a group's rounds that a plan may lose: the first if some groups can, never more than the second."""
LARGEST_GROUP: Final = 2048
"""Larger ones are not planned: every user would send and read a hundred kilobytes of shares."""
_GROWTH: Final = 1.1
"""Sizes that are tried grow by this factor."""
_MOST_EPSILON: Final = 20
"""No plan proposes more: it would promise little."""
LOWEST_FAILURE_LOG2: Final = -1000.0
"""Smaller probabilities, and what can't happen, are reported as this one: a true bound, and a number in JSON."""
PAIRWISE_WARNING: Final = (
    "pairwise, the published pattern, reveals many single values to the server: use it to study, not to protect "
    "(docs/privacy.md)"
)


@dataclass(frozen=True)
class Goal:
    """Keep `min_anonymity` honest users in every sum of a run, except with probability 2^failure_log2."""

    clients: int
    dim: int
    dropout: float
    """θ: every user drops out of a round with this probability, independently of the others."""
    colluding: float
    """γ: this fraction of the users tells the server all they know."""
    min_anonymity: int
    """T: the server learns sums over at least this many honest users."""
    failure_log2: float = FAILURE_LOG2
    server: ServerModel = "malicious"
    alpha: float | None = None
    """The fraction of the model that a user sends in a round; None: the default."""
    group_size: int | None = None
    """Users of a group, at most; None: the planner chooses."""
    noise: DifferentialPrivacy | None = None
    """Differential privacy that the users' own noise has to keep; None: no noise."""

    def __post_init__(self) -> None:
        """Refuse what no plan can be made for."""
        check_kinds(self, skip=("server", "noise"))
        require_type("noise", self.noise, DifferentialPrivacy, optional=True)
        clients, least, chance, low = self.clients, self.min_anonymity, self.failure_log2, LOWEST_FAILURE_LOG2
        some = SMALLEST_GROUP <= clients <= MAX_CLIENTS
        require("clients", some, f"must be from {SMALLEST_GROUP} to {MAX_CLIENTS}, got {clients}")
        require("dim", 1 <= self.dim <= MAX_DIM, f"must be from 1 to 2^40, got {self.dim}")
        for option, rate in (("dropout", self.dropout), ("colluding", self.colluding)):
            require(option, 0 <= rate < 0.5, f"must be in [0, 0.5), got {rate:g}")
        require("min_anonymity", 1 <= least <= clients, f"must be from 1 to the {clients} clients, got {least}")
        require("failure_log2", low <= chance < 0, f"must be at least {low:g} and below 0, got {chance:g}")
        require_server(self.server)
        if self.noise is not None:
            self.noise.check(clients, chance)

    @property
    def most_clients(self) -> int:
        """The largest cohort of which this could be asked: δ has to be below 1/N."""
        return MAX_CLIENTS if self.noise is None else min(MAX_CLIENTS, math.ceil(1 / self.noise.delta) - 1)

    @cached_property
    def colluders(self) -> int:
        """How many users collude: γN to the nearest, and at least one unless γ is 0."""
        return planned_colluders(self.clients, self.colluding) if self.colluding else 0


@dataclass(frozen=True)
class Plan:
    """Groups, threshold and words of a run, what they promise and what they cost; if not feasible, why not."""

    goal: Goal
    feasible: bool
    reason: str
    """One sentence that tells privacy from availability; if not feasible, with what would help."""
    options: RoundOptions | None = None
    """For `Parameters.create`, `secure_sum` and `SecAgg`."""
    groups: int | None = None
    group_size: int | None = None
    """Users of the largest group; others have one less at most."""
    threshold: int | None = None
    anonymity: int | None = None
    """Honest users in every sum that can be opened."""
    colluders: int | None = None
    """Colluding users that a group has at most, except with `privacy_failure_log2`."""
    upload_bytes: int | None = None
    """The UPLOAD message of one user."""
    all_bytes_sent: int | None = None
    all_bytes_received: int | None = None
    """Per round and user, without the model."""
    compression_vs_secagg: float | None = None
    """How many times larger the upload of the full model in 32-bit words is."""
    privacy_failure_log2: float | None = None
    """The chance, per run, of more colluding users in some group than the anonymity allows for, as log2."""
    abort_probability: float | None = None
    """The chance, per round, that a given group's sum is lost; with one group, that the round fails."""
    noise: NoisePlan | None = None
    """Differential privacy; also there if the noise is why nothing is feasible."""


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
    options, noise = _settings(goal, choice)
    if noise and noise.problem:
        return Plan(goal, False, f"{noise.problem}; {_quieter(goal, noise)}", noise=noise)
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


def _settings(goal: Goal, choice: _Choice) -> tuple[RoundOptions, NoisePlan | None]:
    """Return the options of a round, and the noise of differential privacy."""
    sizes, largest = choice.sizes, max(choice.sizes)
    options = RoundOptions(
        alpha=DEFAULT_ALPHA if goal.alpha is None else goal.alpha,
        group_size=None if group_count(goal.clients, None) == len(sizes) == 1 else largest,
        threshold=choice.threshold,
        dropout=goal.dropout,
        colluding=goal.colluding,
        modulus_bits=shortest_word(largest, default_levels(min(sizes))),
    )
    if goal.noise is None:
        return options, None
    params = Parameters.create(goal.clients, goal.dim, options)
    noise = plan_noise(goal.noise, params, choice.promise.anonymity, goal.failure_log2)
    bits, clip = noise.modulus_bits, goal.noise.clip
    return replace(options, modulus_bits=bits, clip_norm=clip, noise_multiplier=noise.multiplier), noise


def _is_feasible(goal: Goal) -> bool:
    choice = _choose(goal)
    if choice is None:
        return False
    try:
        _, noise = _settings(goal, choice)
    except InvalidInput:  # Such as a slice of a smaller model that has no coordinate.
        return False
    return noise is None or noise.problem is None


def _choose(goal: Goal) -> _Choice | None:
    """Return the smallest groups, with the lowest threshold, that keep the goal and lose few rounds."""
    choices = [choice for sizes in _cuts(goal) if (choice := _threshold(goal, sizes))]
    return next((choice for allowed in LOST_ROUNDS for choice in choices if choice.failed <= allowed), None)


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

    if not is_enough(smallest):
        return None
    threshold = low + bisect_left(range(low, smallest), True, key=is_enough)  # A higher one never keeps less.
    kept = promise(sizes, threshold, goal.colluders, goal.server, goal.failure_log2)
    return _Choice(sizes, threshold, kept, failed_rounds(smallest, threshold, goal.dropout))


def _why(goal: Goal, choice: _Choice) -> str:
    """Return what is kept, and what is lost to dropouts, in one sentence."""
    sizes, threshold, kept, failed = choice
    size, several = min(sizes), len(sizes) > 1
    who = f"{len(sizes)} groups of {size}{' or more' if max(sizes) > size else ''}" if several else "one group"
    server = "even if the server lies" if goal.server == "malicious" else "against a server that follows the protocol"
    chance = (
        f", except with probability 2^{math.ceil(10 * kept.failure_log2) / 10:g} per run"
        if math.isfinite(kept.failure_log2)
        else ""
    )
    lost = f"a group loses {failed:.1%} of its rounds" if several else f"{failed:.1%} of the rounds fail"
    remedy = "; a lower dropout, more users or a semi-honest server lose fewer" if failed > LOST_ROUNDS[0] else ""
    honest = f"{kept.anonymity} honest {plural(kept.anonymity, 'user')}"
    return (
        f"privacy: {who} with a threshold of {threshold} keep{'' if several else 's'} {honest} in every sum, {server}, "
        f"with {goal.colluders} of {goal.clients} users colluding{chance}; availability: {lost}, "
        f"because fewer than {threshold} of {size} users stay{remedy}"
    )


def _why_not(goal: Goal) -> str:
    """Return the cause: of the largest groups that were tried, privacy or availability."""
    sizes = list(_cuts(goal))[-1]
    size, honest = min(sizes), goal.clients - goal.colluders
    if goal.min_anonymity > honest:
        return f"privacy: only {honest} of {goal.clients} users {'is' if honest == 1 else 'are'} honest"
    choice = _threshold(goal, sizes)
    against = f"against a {goal.server} server with {goal.colluders} of {goal.clients} users colluding"
    if choice is None:
        kept = promise(sizes, size, goal.colluders, goal.server, goal.failure_log2)
        return (
            f"privacy: even if all users of a group stay, a sum has {kept.anonymity} honest "
            f"{plural(kept.anonymity, 'user')}, since a group of {size} may have {kept.colluders} colluding "
            f"{plural(kept.colluders, 'user')} ({against})"
        )
    wanted = f"{goal.min_anonymity} honest {plural(goal.min_anonymity, 'user')} in every sum"
    staying = math.floor(size * availability(goal.dropout))
    return (
        f"availability: too few users stay, about {staying} of {size} at a dropout of {goal.dropout:g}, while "
        f"{wanted} {against} take{'s' * (goal.min_anonymity == 1)} a threshold of {choice.threshold}, "
        f"which {choice.failed:.0%} of the rounds would miss"
    )


def _remedies(goal: Goal) -> str:
    """Return what would be feasible, changing one thing at a time."""
    curious = goal.server == "malicious" and _is_feasible(replace(goal, server="semi-honest"))
    percent = _largest(math.ceil(100 * goal.dropout) - 1, 0, lambda rate: replace(goal, dropout=rate / 100))
    larger = [goal.clients << doublings for doublings in range(1, 7) if goal.clients << doublings <= goal.most_clients]
    found = {
        "server": "semi-honest" if curious else None,
        "dropout": None if percent is None else f"{percent / 100:g}",
        "min-anonymity": _largest(goal.min_anonymity - 1, 1, lambda count: replace(goal, min_anonymity=count)),
        "clients": next((clients for clients in larger if _is_feasible(replace(goal, clients=clients))), None),
    }
    kept = "" if goal.group_size is None else f" with groups of {goal.group_size}; larger groups may"
    return _feasible(found) or f"no other server, dropout, anonymity or cohort alone helps{kept}"


def _quieter(goal: Goal, noise: NoisePlan) -> str:
    """Return what would be feasible with noise, changing one thing at a time, the cheapest first."""
    asked, excess = noise.goal, noise.norm_in_clips / LARGEST_NORM

    def changed(**changes: float) -> Goal:
        return replace(goal, noise=DifferentialPrivacy(**{**vars(asked), **changes}))

    dim = int(rounded(max(1.0, goal.dim / excess**2), 2, up=False))
    clients = int(rounded(goal.clients * excess, 2, up=True))
    more = goal.clients < clients <= goal.most_clients and _is_feasible(replace(goal, clients=clients))
    tenths = _largest(-math.floor(10 * asked.epsilon) - 1, -10 * _MOST_EPSILON, lambda k: changed(epsilon=-k / 10))
    found = {
        "rounds": _largest(asked.rounds - 1, 1, lambda count: changed(rounds=count)),
        "dim": dim if dim < goal.dim and _is_feasible(replace(goal, dim=dim)) else None,
        "clients": clients if more else None,
        "epsilon": None if tenths is None else f"{-tenths / 10:g}",
    }
    none = "no smaller number of rounds, smaller model, larger cohort or larger epsilon alone helps"
    return f"{ways}; adapters are a way to a smaller model" if (ways := _feasible(found)) else none


def _feasible(options: Mapping[str, int | str | None]) -> str:
    """Return the options that would do, as they are typed."""
    ways = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return f"feasible: {' or '.join(ways)}" if ways else ""


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
    return low + bisect_left(range(low + 1, high + 1), True, key=lambda number: not _is_feasible(change(number)))


def advice(params: Parameters) -> list[str]:
    """Return one sentence for each thing that a user of these settings should know."""
    sentences = [] if params.shape.protects else [PAIRWISE_WARNING]
    size = params.clients // params.groups
    failed = failed_rounds(size, params.quorum, params.dropout)
    if failed > LOST_ROUNDS[0]:
        what = "of the rounds fail" if params.groups == 1 else "of the rounds lose a given group"
        lower = not params.neighbours and params.threshold > lowest_threshold(params)
        remedy = "lower --dropout or --threshold" if lower else "lower --dropout"
        sentences.append(f"about {failed:.0%} {what}, with fewer than {params.quorum} of {size} users left: {remedy}")
    if params.authenticated and params.shape.protects:
        promise = kept_by(params, "malicious", params.colluding)
        if promise.anonymity < 2:
            everybody = kept_by(params.replace(threshold=params.holders), "malicious", params.colluding)
            raised = ["--group-size"] * (params.groups > 1) + ["--threshold"] * (everybody.anonymity >= 2)
            sentences.append(
                f"groups of {params.contributors} with up to {promise.colluders} colluding "
                f"{plural(promise.colluders, 'user')} and a threshold of "
                f"{params.threshold} protect nobody from a malicious server: raise {' or '.join(raised)}"
            )
    return sentences


def lowest_threshold(params: Parameters) -> int:
    """Return the lowest t to ask for: with a roster 2t > P + c, or a malicious server reads single users."""
    if not params.authenticated:
        return params.holders // 2 + 1
    return (params.contributors + _counted_on(params)) // 2 + 1


def require_majority(params: Parameters, threshold: int | None) -> None:
    """Raise `InvalidInput` if a threshold was asked for that is too low for a roster."""
    least = lowest_threshold(params)
    if threshold is not None and threshold < least:
        colluders = _counted_on(params)
        why = f"more than half of {params.contributors} users and {colluders} colluding {plural(colluders, 'one')}"
        problem = f"must be from {least} to {params.holders} with a roster, {why}, got {threshold}"
        raise InvalidInput("threshold", problem)


def _counted_on(params: Parameters) -> int:
    """Return how many users of a group may collude, as users of a roster take it."""
    return planned_colluders(params.contributors, max(USUAL_COLLUDING, params.colluding))
