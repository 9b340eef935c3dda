"""What `SecAgg` is told, checked when it is told, and what it chooses itself: defaults, clips, sentences for the log.

The clips of the next round come from what the server may know anyway: the last means and how many values were clipped.
`rounding.py` has the rule: some headroom times the largest magnitude in the last mean. Every array has a clip of its
own, since the statistics of a normalisation layer move by whole numbers where weights move by thousandths. No single
update is known, but the mean is, and a user's values are rarely many times larger than the mean's largest. Where they
were, the count of clipped values tells, and the clips grow. The first round knows nothing, so its default clip is wide
and its default words are long enough for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt

from flwr.serverapp.strategy import Strategy

from sparsesecagg.crypto.identity import USUAL_COLLUDING, Roster
from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.groups import SMALLEST_GROUP
from sparsesecagg.planning.noise import DifferentialPrivacy, with_noise
from sparsesecagg.privacy.anonymity import ServerModel, colluder_count, failed_rounds
from sparsesecagg.protocol import Parameters, RoundOptions
from sparsesecagg.protocol.policy import kept_by
from sparsesecagg.rounding import next_clips

DEFAULTS = RoundOptions(alpha=DEFAULT_ALPHA, modulus_bits=20)
"""What `SecAgg(strategy)` does without options: all nodes weigh the same, and words that have room for a wide clip."""
WIDE_CLIP, LONG_WORDS = 64.0, 20
"""The first clip where words have so many bits or more: wide enough for the statistics of a normalisation layer."""

GROWTH = 4.0
"""How much a clip grows after a round in which values were clipped, and changes at most after others."""
CEILING = 1024.0
"""Beyond this multiple of the mean's largest value a wider clip is no help: what is clipped then is an outlier."""
MEMORY = 0.7
"""How much of an earlier round's size counts: a mean may come close to zero by chance."""
_ANY = 1e30
_PROBE_DIM = 1 << 20


def parameters(
    options: RoundOptions,
    clients: int,
    dim: int,
    metrics: int,
    roster: Roster | None,
    dp: DifferentialPrivacy | None = None,
) -> Parameters:
    """Return the parameters of a run among so many users.

    Updates come in units of their arrays' clips, so the protocol's own clip is 1. Metrics stand behind the model, each
    as often as it takes for one copy to be sent in every round.
    """
    options = replace(options, clip=None)
    options = with_noise(options, dp, clients, dim, roster) if dp else options
    params = Parameters.create(clients, dim, options, roster=roster)
    return params.replace(dim=dim + metrics * params.shape.copies) if metrics else params


def check_options(options: RoundOptions, roster: Roster | None, dp: DifferentialPrivacy | None = None) -> None:
    """Raise `InvalidInput` for what no cohort could mend; with a roster the cohort is known, and tried."""
    clip = options.clip
    if clip is not None and not (isinstance(clip, int | float) and isfinite(clip) and clip > 0):
        raise InvalidInput("clip", f"must be positive and finite, got {clip}")
    if options.clip_norm is not None or options.noise_multiplier:
        raise InvalidInput("clip_norm", "must not be given here: use dp=DifferentialPrivacy(...), which counts rounds")
    if dp and clip is not None:
        raise InvalidInput("clip", "must not be given with dp, whose clip is the largest 2-norm of an update")
    if roster is not None:
        _require_weights(parameters(options, len(roster.entries), _PROBE_DIM, 0, roster, dp))
        return
    if options.threshold is not None and options.threshold < 2:
        raise InvalidInput("threshold", f"must be at least 2, got {options.threshold}")
    enough = max(SMALLEST_GROUP, options.group_size or 0, (options.neighbours or 0) + 3)
    _require_weights(parameters(replace(options, threshold=None), enough, _PROBE_DIM, 0, None, dp))


def _require_weights(params: Parameters) -> None:
    if params.max_weight and not params.shape.digits.total:
        raise InvalidInput("max_weight", f"must not be given with {params.pattern}, whose sums carry no weights")


def check_metrics(metrics: Mapping[str, float] | None) -> dict[str, float]:
    """Return the metrics to be averaged, each with its largest magnitude."""
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


def too_few(clients: int, online: int) -> str:
    """Return the sentence for a cohort that is too small for any secure aggregation."""
    why = "with two, each would learn the other's update from the sum" if clients == 2 else "a sum needs others"
    if online >= SMALLEST_GROUP:
        remedy = f"{online} are online, so raise fraction_train or min_train_nodes=3 of the strategy"
    else:
        remedy = (
            "set num-supernodes of the simulation to 3 or more (or start more SuperNodes), and min_available_nodes=3 "
            "of the strategy, so that it waits for them"
        )
    return f"must choose 3 nodes or more, and chose {clients} ({why}): {remedy}"


def promised(params: Parameters) -> tuple[int, ServerModel, int]:
    """Return how many honest nodes every sum has, against which server, and with how many colluding."""
    server: ServerModel = "malicious" if params.authenticated else "semi-honest"
    colluding = max(USUAL_COLLUDING, params.colluding)
    return kept_by(params, server, colluding).anonymity, server, colluder_count(params.clients, colluding)


def described(params: Parameters) -> list[str]:
    """Return what the options come to for a cohort, a sentence each: bytes, anonymity, what makes rounds fail."""
    groups = "one group" if params.groups == 1 else f"{params.groups} groups of {min(params.sizes)} or more"
    weights = f"weights are private, up to {params.max_weight}" if params.max_weight else "all nodes weigh the same"
    sent, whole = params.shape.upload_size(), 4 * params.dim
    lines = [
        f"{params.clients} nodes in {groups}, alpha {params.shape.fraction():.3g} with words of {params.modulus_bits} "
        f"bits: each node uploads {_size(sent)} per round instead of {_size(whole)}; {weights}"
    ]
    kept, server, colluders = promised(params)
    fails = failed_rounds(min(params.sizes), params.threshold, params.dropout)
    if not params.shape.protects:
        lines.append(
            f"{params.pattern}, the published pattern, reveals many single values to the server: use it to study, not "
            "to protect (docs/privacy.md)"
        )
    else:
        lines.append(
            f"every sum holds {kept} honest nodes or more against a {server} server with {colluders} nodes colluding"
            + ("" if params.authenticated else "; a malicious one takes a roster")
            + f"; a group needs {params.threshold} of its nodes to the end, which {fails:.1%} of the rounds miss if "
            f"{params.dropout:.0%} of the nodes drop out"
        )
    if mechanism := params.mechanism:
        spread = sqrt(params.clients / kept) if kept else float("inf")
        norm = sqrt(params.dim) * mechanism.multiplier / params.clients
        lines.append(
            f"each round adds noise of {mechanism.multiplier:g} times what one node can change, shared by the {kept} "
            f"honest nodes of every sum: in the mean a norm of {norm:.2g} "
            f"clips, times {spread:.2f} for groups, dropouts and colluders; above 3 hardly anything is learnt"
        )
    return lines


def _size(count: float) -> str:
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


# Clips


def headroom(size: int) -> float:
    """Return how much larger than the mean's largest value a single update may be before it is clipped.

    The largest of thousands of parameters is a steady figure; the largest of a few may be small by chance.
    """
    return 8.0 * (1 + 6 / sqrt(size))


def first_clip(options: RoundOptions) -> float:
    """Return what all arrays begin with."""
    if options.clip is not None:
        return options.clip
    return WIDE_CLIP if options.modulus_bits >= LONG_WORDS else 1.0


@dataclass
class Clips:
    """The largest change of a parameter that is sent, for each array of the model."""

    first: float
    adaptive: bool = True
    values: list[float] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _seen: list[float] = field(default_factory=list)

    def of(self, sizes: Sequence[int]) -> tuple[float, ...]:
        """Return the clips of a model whose arrays have so many parameters; another model begins anew."""
        if list(sizes) != self._sizes:
            self._sizes = list(sizes)
            self.values, self._seen = [self.first] * len(sizes), [0.0] * len(sizes)
        return tuple(self.values)

    def save(self) -> tuple[list[float], list[int], list[float]]:
        """Return what the next clips depend on."""
        return self.values, self._sizes, self._seen

    def restore(self, state: tuple[list[float], list[int], list[float]]) -> None:
        """Go back to what `save` returned."""
        self.values, self._sizes, self._seen = (list(each) for each in state)  # type: ignore[assignment]

    def learn(self, largest: Sequence[float], clipped: int | None) -> None:
        """Adapt to a completed round, given the largest magnitude in each array of its mean."""
        if not self.adaptive:
            return
        usable = [size if size < float("inf") else 0.0 for size in largest]  # Also for what is not a number.
        first = [not seen for seen in self._seen]
        self._seen = [max(now, MEMORY * before) for now, before in zip(usable, self._seen, strict=True)]
        known = [seen > 0 for seen in self._seen]
        if not clipped:
            headrooms = [headroom(size) for size in self._sizes]
            steady = next_clips(self.values, self._seen, headrooms, fastest=GROWTH, known=known)
            # The first clip was a guess, so what is learned first replaces it.
            at_once = next_clips(self.values, self._seen, headrooms, fastest=_ANY, known=known)
            self.values = [float(now if new else step) for now, new, step in zip(at_once, first, steady, strict=True)]
            return
        # Only the number of clipped values is known. Suspects are arrays whose mean has come near its clip; without
        # any, all arrays are.
        near = [8 * seen > value for seen, value in zip(self._seen, self.values, strict=True)]
        for place, value in enumerate(self.values):
            if known[place] and (near[place] or not any(near)) and value < CEILING * self._seen[place]:
                self.values[place] = value * GROWTH


# Strategies that can't be wrapped

_SINGLE = "it compares single updates, and secure aggregation shows the server only their sum"
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


def require_averaging(strategy: object) -> Strategy:
    """Return the strategy, or say by name why it can't be wrapped."""
    if not isinstance(strategy, Strategy):
        raise InvalidInput(
            "strategy",
            f"must be a strategy of flwr.serverapp.strategy (the Message API), got {type(strategy).__name__}",
        )
    for ancestor in type(strategy).__mro__:
        if ancestor.__name__ in REFUSED:
            name = ancestor.__name__
            raise InvalidInput("strategy", f"can't be {name}: {REFUSED[name].format(name=name)}")
    return strategy
