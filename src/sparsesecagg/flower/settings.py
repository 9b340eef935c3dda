"""What `SecAgg` is told, checked at once, and what it chooses itself: defaults, words, sentences for the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite, sqrt
from typing import Any

from flwr.serverapp.strategy import Strategy

from sparsesecagg.crypto.identity import USUAL_COLLUDING, Roster
from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower.arrays import Template
from sparsesecagg.flower.packing import Packing
from sparsesecagg.patterns.groups import SMALLEST_GROUP, group_count
from sparsesecagg.planning.message_sizes import default_levels, shortest_word
from sparsesecagg.planning.noise import DifferentialPrivacy, with_noise
from sparsesecagg.privacy.anonymity import ServerModel, colluder_count, failed_rounds
from sparsesecagg.protocol import Parameters, RoundOptions
from sparsesecagg.protocol.combine import SMALLEST_NUMBER
from sparsesecagg.protocol.policy import kept_by

DEFAULTS = RoundOptions(alpha=DEFAULT_ALPHA)
"""What `SecAgg(strategy)` does without options: all nodes weigh the same, words are as short as the groups allow."""
_LIGHTEST = 32
"""Levels of a node whose weight is 1, where nodes have private weights."""
_PROBE_DIM, _SMALL_MODEL, _TINY = 1 << 20, 4096, 64


def parameters(
    options: RoundOptions,
    clients: int,
    template: Template,
    metrics: int,
    roster: Roster | None,
    dp: DifferentialPrivacy | None,
    votes: bool,
) -> Parameters:
    """Return the parameters of a run among so many users, with room for the model, metrics and votes for ranges.

    Updates come in units of their arrays' ranges, so the protocol's own clip is 1.
    """
    if options is DEFAULTS and template.dim < _TINY:
        options = replace(options, alpha=1.0)  # There is nothing to slice.
    params = _with_dim(options, clients, template.dim, roster, dp)
    packing = Packing(template, params, metrics)
    return params.replace(dim=packing.dim_with_votes if votes else packing.dim)


def _with_dim(
    options: RoundOptions, clients: int, dim: int, roster: Roster | None, dp: DifferentialPrivacy | None
) -> Parameters:
    options = replace(options, clip=None)
    options = with_noise(options, dp, clients, dim, roster) if dp else with_words(options, clients, roster, dim)
    return Parameters.create(clients, dim, options, roster=roster)


def with_words(options: RoundOptions, clients: int, roster: Roster | None, dim: int = _PROBE_DIM) -> RoundOptions:
    """Return the options with the words of a cohort: twice the levels of the planner, since models differ.

    A small model has fewer values over which rounding averages out, and costs little anyway.
    """
    if options.modulus_bits is not None:
        return options
    params = Parameters.create(clients, _PROBE_DIM, options, roster=roster)
    if not params.shape.short_words:
        return options
    levels = _LIGHTEST * params.max_weight if params.max_weight else 2 * default_levels(min(params.sizes))
    levels = max(levels, _SMALL_MODEL if dim < _SMALL_MODEL else 0)
    most = params.word.largest // params.contributors
    return replace(options, modulus_bits=shortest_word(params.contributors, min(levels, most)))


def check_options(options: RoundOptions, roster: Roster | None, dp: DifferentialPrivacy | None = None) -> None:
    """Raise `InvalidInput` for what no cohort could mend; with a roster the cohort is known, and tried."""
    clip = options.clip
    if clip is not None and not (isinstance(clip, int | float) and isfinite(clip) and clip > 0):
        raise InvalidInput("clip", f"must be positive and finite, got {clip}")
    if options.clip_norm is not None or options.noise_multiplier or options.per_example:
        raise InvalidInput("clip_norm", "must not be given here: use dp=DifferentialPrivacy(...), which counts rounds")
    if dp and clip is not None:
        raise InvalidInput("clip", "must not be given with dp, whose clip is the largest 2-norm of an update")
    if roster is not None:
        _require_weights(_with_dim(options, len(roster.entries), _PROBE_DIM, roster, dp))
        return
    if options.threshold is not None and options.threshold < 2:
        raise InvalidInput("threshold", f"must be at least 2, got {options.threshold}")
    enough = max(SMALLEST_GROUP, options.group_size or 0, (options.neighbours or 0) + 3)
    _require_weights(_with_dim(replace(options, threshold=None), enough, _PROBE_DIM, None, dp))


def _require_weights(params: Parameters) -> None:
    if params.max_weight and not params.shape.digits.total:
        raise InvalidInput("max_weight", f"must not be given with {params.pattern}, whose sums carry no weights")


def check_gain(gain: float | str) -> float | None:
    """Return a gain that is told; None for one that adapts."""
    if gain == "auto":
        return None
    if not (isinstance(gain, int | float) and gain >= 1):
        raise InvalidInput("gain", f"must be 'auto' or a number of at least 1, got {gain!r}")
    return float(gain)


def check_metrics(metrics: Mapping[str, float] | None, dp: DifferentialPrivacy | None) -> dict[str, float]:
    """Return the metrics to be averaged, each with its largest magnitude."""
    if dp and metrics:
        raise InvalidInput("metrics", "must not be given with dp: they would be outside of the noise")
    for name, bound in (metrics or {}).items():
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not isfinite(bound) or bound <= 0:
            raise InvalidInput("metrics", f"must map names to largest magnitudes, got {bound!r} for {name!r}")
    return {name: float(bound) for name, bound in (metrics or {}).items()}


def require_positive(name: str, seconds: object) -> float:
    """Return a time that can be waited."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise InvalidInput(name, f"must be positive seconds, got {seconds!r}")
    return float(seconds)


# Sentences

UNMASKED_EVALUATION = (
    "federated evaluation is not masked: a server can compute a node's gradient from its replies; set "
    "fraction_evaluate=0 if it must not"
)


def require_enough(clients: int, online: int) -> None:
    """Raise for a cohort that is too small for any secure aggregation."""
    if clients >= SMALLEST_GROUP:
        return
    why = "with two, each would learn the other's update from the sum" if clients == 2 else "a sum needs others"
    remedy = (
        f"{online} are online, so raise fraction_train or min_train_nodes=3 of the strategy"
        if online >= SMALLEST_GROUP
        else "set num-supernodes of the simulation to 3 or more (or start more SuperNodes), and min_available_nodes=3 "
        "of the strategy, so that it waits for them"
    )
    raise InvalidInput("strategy", f"must choose 3 nodes or more, and chose {clients} ({why}): {remedy}")


def require_threshold(params: Parameters, invited: int) -> None:
    """Raise if so few users of a roster were chosen that no round can end."""
    if params.authenticated and invited < params.threshold:
        raise InvalidInput(
            "strategy",
            f"must choose {params.threshold} nodes or more, since rounds with this roster need so many of its "
            f"{params.clients} users, and chose {invited}: raise fraction_train and min_available_nodes",
        )


def promised(params: Parameters) -> tuple[int, ServerModel, int]:
    """Return how many honest nodes every sum has, against which server, and with how many colluding."""
    server: ServerModel = "malicious" if params.authenticated else "semi-honest"
    colluding = max(USUAL_COLLUDING, params.colluding)
    return kept_by(params, server, colluding).anonymity, server, colluder_count(params.clients, colluding)


def described(params: Parameters, model: int, finds_ranges: bool) -> list[str]:
    """Return what the options come to for a cohort and a model of so many bytes: sent, hidden, enforced."""
    groups = "one group" if params.groups == 1 else f"{params.groups} groups of {min(params.sizes)} or more"
    sent = params.shape.upload_size()
    votes = "; round 1 sends that twice, to find the range of each array" if finds_ranges else ""
    lines = [
        f"sent: {params.clients} nodes in {groups}, alpha {params.shape.fraction():.3g} in words of "
        f"{params.modulus_bits} bits: each node uploads {_size(sent)} per round instead of {_size(model)}, "
        f"{model / sent:.1f} times less{votes}"
    ]
    if not params.shape.protects:
        lines.append(
            f"hidden: {params.pattern}, the published pattern, reveals many single values to the server: use it to "
            "study, not to protect (docs/privacy.md)"
        )
        return lines
    kept, server, colluders = promised(params)
    weights = f"weights are private, up to {params.max_weight}" if params.max_weight else "all nodes weigh the same"
    lines.append(
        f"hidden: every sum holds {kept} honest nodes or more against a {server} server with {colluders} nodes "
        f"colluding; {weights}"
    )
    if mechanism := params.mechanism:
        unit = "example" if params.per_example else "node"
        noise = (
            f"each round adds noise of {mechanism.multiplier:g} times what one {unit} can change, shared by the {kept} "
            "honest nodes of every sum"
        )
        if not params.per_example:  # The server does not know how many examples there are.
            spread = sqrt(params.clients / kept) if kept else float("inf")
            norm = sqrt(params.dim) * mechanism.multiplier / params.clients
            noise += (
                f": in the mean a norm of {norm:.2g} clips, times {spread:.2f} for groups, dropouts and colluders; "
                "above 3 hardly anything is learnt"
            )
        lines.append(noise)
    fails = failed_rounds(min(params.sizes), params.threshold, params.dropout)
    plain = "the server's word for who takes part: a malicious one takes a roster"
    roster = "the roster's keys, so no server can make up nodes" if params.authenticated else plain
    lines.append(
        f"enforced by each node: {params.threshold} of its group of {min(params.sizes)} stay to the end, or nothing is "
        f"opened ({fails:.1%} of the rounds if {params.dropout:.0%} of the nodes drop out); {roster}"
    )
    return lines


def _size(count: float) -> str:
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


# Strategies that can't be wrapped

_SINGLE = (
    "it compares single updates, and secure aggregation shows the server only their sum; over='groups', groups=9 gives "
    "it one mean per group instead"
)
_TREES = "it collects trees as bytes, which have no sum"
_INSIDE_OUT = "wrap the other way round: {name}(SecAgg(...), ...) with secagg_mod before the clipping mod"

REFUSED = {
    "Krum": _SINGLE,
    "MultiKrum": _SINGLE,
    "Bulyan": _SINGLE,
    "FedMedian": _SINGLE,
    "FedTrimmedAvg": _SINGLE,
    "QFedAvg": "it weighs each update by that client's own loss",
    "FedXgbBagging": _TREES,
    "FedXgbCyclic": _TREES,
    "DifferentialPrivacyServerSideFixedClipping": "the server would have to clip single updates",
    "DifferentialPrivacyServerSideAdaptiveClipping": "the server would have to clip single updates",
    "DifferentialPrivacyClientSideAdaptiveClipping": "it reads a bit of every single client",
    "DifferentialPrivacyClientSideFixedClipping": _INSIDE_OUT,
    "SecAgg": "it is already secure aggregation",
}
"""By name, with the reason: whoever needs single updates gets one sum instead."""


OVER = ("nodes", "groups", "clipped-groups")
"""What the wrapped strategy is given: one mean of all nodes, one of each group, or centred clipping over groups."""


def by_groups(options: RoundOptions, over: str, groups: int | None) -> RoundOptions:
    """Return the options of a run whose groups are compared."""
    if over not in OVER:
        raise InvalidInput("over", f"must be one of {', '.join(OVER)}, got {over!r}")
    if over == "nodes":
        if groups is not None:
            raise InvalidInput("groups", "must not be given with over='nodes': use options.group_size")
        return options
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < SMALLEST_NUMBER:
        raise InvalidInput("groups", f"must be {SMALLEST_NUMBER} or more with over={over!r}, got {groups}")
    if options.group_size is not None:
        raise InvalidInput("group_size", "must not be given with groups, from which it follows")
    return replace(options, same_slices=True)


def cut_into(options: RoundOptions, groups: int | None, clients: int, roster: Roster | None) -> RoundOptions:
    """Return the options that cut a cohort into so many groups; with a roster it must have as many."""
    if groups is None:
        return options
    found = group_count(clients, roster.group_size) if roster else groups
    size = -(-clients // groups)
    if size < SMALLEST_GROUP or found != groups or (not roster and group_count(clients, size) != groups):
        raise InvalidInput("groups", f"must cut {clients} nodes evenly into groups of 3 or more, got {groups}")
    return options if roster else replace(options, group_size=size)


def require_averaging(strategy: object, over: str = "nodes") -> Strategy:
    """Return the strategy, or say by name why it can't be wrapped."""
    if not isinstance(strategy, Strategy):
        raise InvalidInput(
            "strategy",
            f"must be a strategy of flwr.serverapp.strategy (the Message API), got {type(strategy).__name__}",
        )
    for ancestor in type(strategy).__mro__:
        name = ancestor.__name__
        if name in REFUSED and not (over == "groups" and REFUSED[name] is _SINGLE):
            raise InvalidInput("strategy", f"can't be {name}: {REFUSED[name].format(name=name)}")
    return strategy


# A strategy that is wrapped


@contextmanager
def in_charge(wrapper: Strategy, wrapped: Strategy) -> Iterator[None]:
    """Let the wrapped strategy's own loop, which a subclass may have changed, call the methods of the wrapper."""
    hooks = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate", "summary")
    for name in hooks:
        setattr(wrapped, name, getattr(wrapper, name))
    try:
        yield
    finally:
        for name in hooks:
            delattr(wrapped, name)


def own(strategy: Strategy, name: str) -> Any:
    """Return a method of a wrapped strategy, as its class has it."""
    return getattr(type(strategy), name).__get__(strategy)
