"""What `SecAgg` is told, checked at once, and what it chooses itself: defaults, words, sentences for the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt
from typing import Any

from flwr.serverapp.strategy import Strategy

from sparsesecagg.crypto.identity import USUAL_COLLUDING, Roster
from sparsesecagg.downlink.gain import DEFAULT_ALPHA, Gain
from sparsesecagg.errors import InvalidInput, require, require_type
from sparsesecagg.flower.arrays import Template
from sparsesecagg.flower.packing import Packing
from sparsesecagg.patterns.groups import SMALLEST_GROUP, group_count
from sparsesecagg.planning.message_sizes import default_levels, shortest_word
from sparsesecagg.planning.noise import DifferentialPrivacy, with_noise
from sparsesecagg.planning.planner import PAIRWISE_WARNING
from sparsesecagg.privacy.anonymity import ServerModel, failed_rounds, planned_colluders
from sparsesecagg.protocol import Parameters, RoundOptions
from sparsesecagg.protocol.combine import SMALLEST_NUMBER
from sparsesecagg.protocol.parameters import LARGEST_CLIP, SMALLEST_CLIP, check_kinds
from sparsesecagg.protocol.policy import kept_by, sharing_noise

DEFAULTS = RoundOptions(alpha=DEFAULT_ALPHA)
"""What `SecAgg(strategy)` does without options: all nodes weigh the same, words are as short as the groups allow."""
OVER = ("nodes", "groups", "clipped-groups")
"""What the wrapped strategy is given: one mean of all nodes, one of each group, or centred clipping over groups."""
UNMASKED_EVALUATION = (
    "federated evaluation is not masked: a server can compute a node's gradient from its replies; set "
    "fraction_evaluate=0 if it must not"
)
_LIGHTEST = 32
"""Levels of a node whose weight is 1, where nodes have private weights."""
_FEWEST = 4
"""Levels at least, however large the groups: models differ."""
_PROBE_DIM, _SMALL_MODEL, _TINY = 1 << 20, 4096, 64


@dataclass(frozen=True)
class Settings:
    """The settings of a strategy. Raises `InvalidInput` for what no cohort could mend."""

    options: RoundOptions = DEFAULTS
    roster: Roster | None = None
    dp: DifferentialPrivacy | None = None
    gain: float | None = None
    """None for one that adapts."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    over: str = "nodes"
    groups: int | None = None

    def __post_init__(self) -> None:
        for name, kind in (("options", RoundOptions), ("roster", Roster), ("dp", DifferentialPrivacy)):
            require_type(name, getattr(self, name), kind, optional=name != "options")
        check_kinds(self, skip=("options", "roster", "dp", "gain", "metrics", "over"))
        self._check_groups()
        options, clip = self.options, self.options.clip
        if self.gain is not None and not (is_positive(self.gain) and self.gain >= 1):
            raise InvalidInput("gain", f"must be 'auto' or a number of at least 1, got {self.gain!r}")
        if self.dp and self.metrics:
            raise InvalidInput("metrics", "must not be given with dp: they would be outside of the noise")
        known = isinstance(self.metrics, Mapping)
        require("metrics", known, f"must map names to largest magnitudes, got a {type(self.metrics).__name__}")
        for name, bound in self.metrics.items():
            require("metrics", is_positive(bound), f"must map names to largest magnitudes, got {bound!r} for {name!r}")
        object.__setattr__(self, "metrics", {name: float(bound) for name, bound in self.metrics.items()})
        fits = clip is None or SMALLEST_CLIP <= clip <= LARGEST_CLIP
        require("clip", fits, f"must be from 1e-30 to 1e30, got {clip}")
        if options.clip_norm is not None or options.noise_multiplier or options.per_example:
            raise InvalidInput("clip_norm", "must not be given here: use dp=DifferentialPrivacy(...)")
        if self.dp and clip is not None:
            raise InvalidInput("clip", "must not be given with dp, whose clip is the largest 2-norm of an update")
        if self.roster is None and options.threshold is not None and options.threshold < 2:
            raise InvalidInput("threshold", f"must be at least 2, got {options.threshold}")
        # With a roster the cohort is known, and tried; else one that is large enough.
        enough = max(SMALLEST_GROUP, options.group_size or 0, (options.neighbours or 0) + 3)
        tried = options if self.roster else replace(options, threshold=None)
        params = self._with_dim(tried, len(self.roster.entries) if self.roster else enough, _PROBE_DIM)
        if params.max_weight and not params.shape.digits.total:
            raise InvalidInput("max_weight", f"must not be given with {params.pattern}, whose sums carry no weights")

    def _check_groups(self) -> None:
        require("over", self.over in OVER, f"must be one of {', '.join(OVER)}, got {self.over!r}")
        if self.over == "nodes":
            require("groups", self.groups is None, "must not be given with over='nodes': use options.group_size")
            return
        groups = self.groups
        if groups is None or groups < SMALLEST_NUMBER:
            raise InvalidInput("groups", f"must be {SMALLEST_NUMBER} or more with over={self.over!r}, got {groups}")
        require("group_size", self.options.group_size is None, "must not be given with groups, from which it follows")
        object.__setattr__(self, "options", replace(self.options, same_slices=True))

    @property
    def finds_ranges(self) -> bool:
        """Whether nodes vote for the first ranges. With noise the update is clipped by its norm, in its own units."""
        return self.options.clip is None and self.dp is None

    def parameters(self, template: Template, invited: int, online: int) -> Parameters:
        """Return the parameters of a run among the invited, with room for the model, metrics and votes for ranges.

        Updates come in units of their arrays' ranges, so the protocol's own clip is 1.
        """
        clients = len(self.roster.entries) if self.roster else invited
        _require_enough(clients, online)
        options = self._cut(clients)
        if options is DEFAULTS and template.dim < _TINY:
            options = replace(options, alpha=1.0)  # There is nothing to slice.
        params = self._with_dim(options, clients, template.dim)
        if self.gain is not None:
            Gain(params.shape.coverage, self.gain)  # Raises for one beyond what this coverage allows.
        packing = Packing(template, params, len(self.metrics))
        return params.replace(dim=packing.dim_with_votes if self.finds_ranges else packing.dim)

    def _cut(self, clients: int) -> RoundOptions:
        """Return the options that cut a cohort into as many groups as are wanted; with a roster it must have them."""
        if self.groups is None:
            return self.options
        size = -(-clients // self.groups)
        found = group_count(clients, self.roster.group_size if self.roster else size)
        if size < SMALLEST_GROUP or found != self.groups:
            raise InvalidInput("groups", f"must cut {clients} nodes evenly into groups of 3 or more, got {self.groups}")
        return replace(self.options, group_size=None if self.roster else size)

    def _with_dim(self, options: RoundOptions, clients: int, dim: int) -> Parameters:
        options, roster = replace(options, clip=None), self.roster
        if self.dp:
            return Parameters.create(clients, dim, with_noise(options, self.dp, clients, dim, roster), roster=roster)
        return Parameters.create(clients, dim, with_words(options, clients, roster, dim), roster=roster)


def with_words(options: RoundOptions, clients: int, roster: Roster | None, dim: int = _PROBE_DIM) -> RoundOptions:
    """Return the options with the words of a cohort: those of the planner, with a few levels more since models differ.

    A small model has fewer values over which rounding averages out, and costs little anyway.
    """
    if options.modulus_bits is not None:
        return options
    params = Parameters.create(clients, _PROBE_DIM, options, roster=roster)
    if not params.shape.short_words:
        return options
    levels = _LIGHTEST * params.max_weight if params.max_weight else max(_FEWEST, default_levels(min(params.sizes)))
    levels = max(levels, _SMALL_MODEL if dim < _SMALL_MODEL else 0)
    most = params.word.largest // params.contributors
    return replace(options, modulus_bits=shortest_word(params.contributors, min(levels, most)))


def is_positive(value: object) -> bool:
    """Return whether a value is a number above 0 that is finite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def require_positive(name: str, seconds: float) -> float:
    """Return a time that can be waited."""
    require(name, is_positive(seconds), f"must be positive seconds, got {seconds!r}")
    return float(seconds)


def _require_enough(clients: int, online: int) -> None:
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


def described(params: Parameters, model: int, finds_ranges: bool, roster: Roster | None = None) -> list[str]:
    """Return what the options come to for a cohort and a model of so many bytes: sent, hidden, enforced."""
    smallest, sent = min(params.sizes), params.shape.upload_size()
    groups = "one group" if params.groups == 1 else f"{params.groups} groups of {smallest} or more"
    votes = "; round 1 sends that twice, to find the range of each array" if finds_ranges else ""
    lines = [
        f"sent: {params.clients} nodes in {groups}, alpha {params.shape.fraction():.3g} in words of "
        f"{params.modulus_bits} bits: each node uploads {sent / 1000:.1f} kB per round instead of {model / 1000:.1f} "
        f"kB, {model / max(1, sent):.1f} times less{votes}"
    ]
    if not params.shape.protects:
        return [*lines, f"hidden: {PAIRWISE_WARNING}"]
    server: ServerModel = "malicious" if params.authenticated else "semi-honest"
    colluding = max(USUAL_COLLUDING, params.colluding)
    kept, colluders = kept_by(params, server, colluding).anonymity, planned_colluders(params.clients, colluding)
    weights = f"weights are private, up to {params.max_weight}" if params.max_weight else "all nodes weigh the same"
    lines.append(
        f"hidden: every sum holds {kept} honest nodes or more against a {server} server that "
        f"{colluders} {'node helps' if colluders == 1 else 'nodes help'}; {weights}"
    )
    if mechanism := params.mechanism:
        unit = "example" if params.per_example else "node"
        sharing = sharing_noise(params, roster)
        noise = f"each round adds noise of {mechanism.multiplier:g} times what one {unit} can change, of which "
        noise += f"every node brings 1/{sharing}"
        if not params.per_example and sharing:  # The server does not know how many examples there are.
            norm = sqrt(params.dim / params.clients / sharing) * mechanism.multiplier
            noise += f": in the mean a norm of about {norm:.2g} clips; above 3 hardly anything is learnt"
        lines.append(noise)
    fails = failed_rounds(smallest, params.threshold, params.dropout)
    plain = "not enforced: that the nodes exist, since a server could make some up; a roster prevents that"
    lines.append(
        f"enforced by each node: {params.threshold} of its group of {smallest} stay to the end, or nothing is "
        f"opened ({fails:.1%} of the rounds if {params.dropout:.0%} of the nodes drop out); "
        f"{'the keys of the roster, so no server can make up nodes' if params.authenticated else plain}"
    )
    return lines


# The wrapped strategy

_SINGLE = (
    "it compares single updates, and secure aggregation shows the server only their sum; over='groups', groups=9 gives "
    "it one mean per group instead"
)
_NOISE = (
    "its noise does not cover what rounding adds to an update, nor the ranges and steps that nodes are sent: use "
    "SecAgg(..., dp=DifferentialPrivacy(...))"
)
REFUSED = {
    **dict.fromkeys(("Krum", "MultiKrum", "Bulyan", "FedMedian", "FedTrimmedAvg"), _SINGLE),
    "QFedAvg": "it weighs each update by that client's own loss",
    **dict.fromkeys(("FedXgbBagging", "FedXgbCyclic"), "it collects trees as bytes, which have no sum"),
    **{
        f"DifferentialPrivacy{side}Side{kind}Clipping": _NOISE
        for side in ("Server", "Client")
        for kind in ("Fixed", "Adaptive")
    },
    "SecAgg": "it is already secure aggregation",
}
"""By name, with the reason: whoever needs single updates gets one sum instead."""


def require_averaging(strategy: object, over: str = "nodes") -> Strategy:
    """Return the strategy, or say by name why it can't be wrapped."""
    if not isinstance(strategy, Strategy):
        found = type(strategy).__name__
        raise InvalidInput("strategy", f"must be a strategy of flwr.serverapp.strategy (the Message API), got {found}")
    for name in (ancestor.__name__ for ancestor in type(strategy).__mro__):
        if name in REFUSED and not (over == "groups" and REFUSED[name] is _SINGLE):
            raise InvalidInput("strategy", f"can't be {name}: {REFUSED[name]}")
    return strategy


def require_around(strategy: Strategy) -> None:
    """Raise for a strategy around a `SecAgg` that needs single updates or adds noise."""
    for name in (ancestor.__name__ for ancestor in type(strategy).__mro__):
        if name in REFUSED:
            raise InvalidInput("strategy", f"can't be inside {name}: {REFUSED[name]}")


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
