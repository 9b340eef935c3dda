"""The server's choices: everything `SecAgg` is told, checked when it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import Any

from flwr.serverapp.strategy import Strategy

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.flower.choice import Wish, choose, word_bits
from sparsesecagg.errors import InvalidInput
from sparsesecagg.planning.message_sizes import LONGEST_WORD
from sparsesecagg.planning.plan import SMALLEST_COHORT
from sparsesecagg.protocol import Parameters, Stage

STAGES = (Stage.ADVERTISE_KEYS, Stage.DRAW, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK)
"""All exchanges there may be; a round in steady state has UPLOAD and UNMASK, and CONFIRM where it is asked for."""

LARGE_WORDS = 24
"""Words of this many bits or more have room for weights whose size is not known beforehand."""
DEFAULT_MAX_WEIGHT = 1 << 16
WEIGHTS = ("examples", "uniform")
_PROBE_DIM = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What stays the same as long as the strategy lives."""

    alpha: float | None = None
    """None: with committees, what the wish needs; everything otherwise."""
    pattern: str = "committee"
    committee_size: int | None = None
    pod_size: int | None = None
    modulus_bits: int | None = None
    """None: 32, or what the groups of a plan need where weights are alike or have a known limit."""
    max_weight: int | None = 0
    """None: not known; then weights up to `DEFAULT_MAX_WEIGHT` fit."""
    neighbours: int | None = None
    threshold: int | None = None
    min_survivors: int | None = None
    confirm: bool | None = None
    colluders: int | None = None
    dropout: float = 0.1
    min_updated: float = 0.0
    """The fraction of the coordinates that must be opened for a round to count."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Allowed metrics of nodes, and the largest magnitude of each."""
    wish: Wish = field(default_factory=Wish)
    """What the groups must keep where the planner chooses them."""

    @property
    def planned(self) -> bool:
        """Whether the planner chooses the groups."""
        return self.pattern == "committee" and self.alpha is self.committee_size is self.pod_size is None

    @property
    def weight_limit(self) -> int:
        """The largest weight of a node; 0 if all are alike."""
        return DEFAULT_MAX_WEIGHT if self.max_weight is None else self.max_weight

    def parameters(self, clients: int, dim: int, session: bytes = b"", roster: Roster | None = None) -> Parameters:
        """Return the parameters of a run among so many users."""
        groups: dict[str, Any] = {
            "alpha": 1.0 if self.alpha is None and self.committee_size is None else self.alpha,
            "committee_size": self.committee_size,
            "pod_size": self.pod_size,
        }
        bits = self.modulus_bits
        if self.planned and clients >= SMALLEST_COHORT:
            groups = choose(self.wish, clients, dim, self.dropout, roster=roster is not None, confirm=self.confirm)
            if bits is None:
                bits = word_bits(-(-clients // groups["committees"]), self.max_weight)
        stated = {"threshold": self.threshold, "min_survivors": self.min_survivors, "confirm": self.confirm}
        groups.update({name: value for name, value in stated.items() if value is not None})
        return Parameters.create(
            clients=clients,
            dim=dim,
            pattern=self.pattern,
            dropout=self.dropout,
            modulus_bits=LONGEST_WORD if bits is None else bits,
            neighbours=self.neighbours,
            clip=1.0,  # Updates come in units of their arrays' clips.
            max_weight=self.weight_limit,
            colluders=self.colluders,
            session=session,
            roster_digest=roster.digest if roster else b"",
            **groups,
        )

    def check(self, clip: float, roster: Roster | None = None) -> None:
        """Raise `InvalidInput` for what no cohort could mend: try the smallest cohort that can have these settings.

        With a roster the cohort is known, and tried.
        """
        if not (isinstance(clip, int | float) and isfinite(clip) and clip > 0):
            raise InvalidInput("clip", f"must be positive and finite, got {clip}")
        if self.alpha is not None and not (isinstance(self.alpha, int | float) and 0 < self.alpha <= 1):
            raise InvalidInput("alpha", f"must be in (0, 1], got {self.alpha}")
        if not (isinstance(self.min_updated, int | float) and 0 <= self.min_updated <= 1):
            raise InvalidInput("min_updated", f"must be in [0, 1], got {self.min_updated}")
        least = 1 if self.min_survivors is None else self.min_survivors
        if not isinstance(least, int) or least < 1:
            raise InvalidInput("min_survivors", f"must be at least 1, got {self.min_survivors}")
        if self.threshold is not None and self.threshold < 2:
            raise InvalidInput("threshold", f"must be at least 2, got {self.threshold}")
        for name, bound in self.metrics.items():
            if isinstance(bound, bool) or not isinstance(bound, int | float) or not isfinite(bound) or bound <= 0:
                raise InvalidInput("metrics", f"must map names to largest magnitudes, got {bound!r} for {name!r}")
        if roster is not None:
            self.parameters(len(roster.entries), _PROBE_DIM, roster=roster)
            return
        groups = 1 if self.pattern != "committee" or self.alpha is None else ceil(1 / self.alpha) + 1
        size = max(3, least, self.committee_size or 0)
        enough = max(groups * size, self.pod_size or 0, 2 * (self.colluders or 0) + 1, (self.neighbours or 0) + 3)
        Settings(**{**vars(self), "threshold": None}).parameters(enough, _PROBE_DIM)


def weight_limit(weights: str, max_weight: int | None, modulus_bits: int | None, pattern: str) -> int | None:
    """Return the largest weight: as given, or None (not known) where words are long enough for that.

    The weight scales an update before it is rounded, so a limit far above the real weights wastes levels. Long words
    have levels to waste; short ones have not, and a silent default would ruin the model.
    """
    if weights not in WEIGHTS:
        raise InvalidInput("weights", f"must be one of {', '.join(WEIGHTS)}, got {weights!r}")
    if weights == "uniform":
        if max_weight:
            raise InvalidInput("max_weight", f"must not be given with uniform weights, got {max_weight}")
        return 0
    if max_weight is not None:
        return max_weight
    if pattern == "pairwise":
        return 0  # Its locations are secret, so no slice of it could carry a weight.
    if modulus_bits is None or modulus_bits >= LARGE_WORDS:
        return None
    raise InvalidInput(
        "max_weight",
        f"must be given with words of {modulus_bits} bits: the largest number of examples that a node has; or "
        'weights="uniform", to weigh all nodes alike',
    )


def stage_timeouts(timeout: float, timeouts: Mapping[str | Stage, float] | None) -> dict[Stage, float | None]:
    """Return the seconds that each stage waits; None for UPLOAD means what `start` is told."""
    result: dict[Stage, float | None] = dict.fromkeys(STAGES, timeout)
    result[Stage.UPLOAD] = None
    for name, seconds in (timeouts or {}).items():
        stage = name if isinstance(name, Stage) else Stage.__members__.get(name)
        if stage not in result:
            raise InvalidInput("timeouts", f"must be given for {', '.join(s.name for s in STAGES)}, got {name!r}")
        result[stage] = seconds
    for limit in result.values():
        _require_positive(limit)
    return result


def _require_positive(seconds: Any) -> None:
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise InvalidInput("timeouts", f"must be positive seconds, got {seconds!r}")


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
"""Strategies that can't be wrapped, by name, with the reason: whoever needs single updates gets one sum instead."""


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
