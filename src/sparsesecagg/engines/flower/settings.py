"""The server's choices: everything `SecAgg` is told, checked when it is told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import Any

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import STAGES, RoundParameters, Stage
from sparsesecagg.protocol.parameters import SESSION_SIZE

LARGE_WORDS = 24
"""Words of this many bits or more have room for weights whose size is not known beforehand."""
DEFAULT_MAX_WEIGHT = 1 << 16
_PROBE_DIM = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What stays the same in all rounds of a run."""

    alpha: float
    pattern: str
    modulus_bits: int
    max_weight: int
    neighbours: int | None
    threshold: int | None
    min_survivors: int
    stripes: int
    dropout: float = 0.0
    """The fraction of nodes that is expected to drop out; for advice only, nothing depends on it."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Allowed metrics of clients, and the largest magnitude of each."""

    def parameters(
        self,
        clients: int,
        dim: int,
        round_number: int = 1,
        terms_digest: bytes = b"",
        roster_digest: bytes = b"",
    ) -> RoundParameters:
        """Return the parameters of one attempt at a round among so many clients."""
        return RoundParameters.create(
            clients=clients,
            dim=dim,
            pattern=self.pattern,
            alpha=self.alpha,
            dropout=self.dropout,
            modulus_bits=self.modulus_bits,
            neighbours=self.neighbours,
            threshold=self.threshold,
            min_survivors=self.min_survivors,
            clip=1.0,  # Updates come in units of their arrays' clips.
            max_weight=self.max_weight,
            stripes=self.stripes,
            round_number=round_number,
            model_digest=terms_digest,
            session=os.urandom(SESSION_SIZE),
            roster_digest=roster_digest,
        )

    def check(self, clip: float, roster: Roster | None = None) -> None:
        """Raise `InvalidInput` for what no cohort could mend: try the smallest cohort that can have these settings.

        With a roster the cohort is known, and tried.
        """
        if not (isinstance(clip, int | float) and isfinite(clip) and clip > 0):
            raise InvalidInput("clip", f"must be positive and finite, not {clip}")
        if not (isinstance(self.alpha, int | float) and 0 < self.alpha <= 1):
            raise InvalidInput("alpha", f"must lie in (0, 1], not {self.alpha}")
        if not isinstance(self.min_survivors, int) or self.min_survivors < 1:
            raise InvalidInput("min_survivors", f"must be at least 1, not {self.min_survivors}")
        if self.threshold is not None and self.threshold < 2:
            raise InvalidInput("threshold", f"must be at least 2, not {self.threshold}")
        clients = ceil(max(3, self.min_survivors) / self.alpha) + 3
        trial = Settings(**{**vars(self), "threshold": None, "metrics": {}})
        trial.parameters(max(clients, (self.neighbours or 0) + 3), _PROBE_DIM)
        if roster is not None:
            self.parameters(len(roster.entries), _PROBE_DIM, roster_digest=roster.digest)
        for name, bound in self.metrics.items():
            if isinstance(bound, bool) or not isinstance(bound, int | float) or not isfinite(bound) or bound <= 0:
                raise InvalidInput("metrics", f"must map names to largest magnitudes, and {name!r} has {bound!r}")


def weight_limit(max_weight: int | None, modulus_bits: int, pattern: str) -> int:
    """Return the largest weight: as given, or a default where words are long enough for one.

    The weight scales an update before it is rounded, so a limit far above the real weights wastes levels. Long words
    have levels to waste; short ones have not, and a silent default would ruin the model.
    """
    if max_weight is not None:
        return max_weight
    if pattern == "pairwise":
        return 0  # Its locations are secret, so no block of it could carry a weight.
    if modulus_bits >= LARGE_WORDS:
        return DEFAULT_MAX_WEIGHT
    raise InvalidInput(
        "max_weight",
        f"must be given with words of {modulus_bits} bits: the largest number of examples that a node has, or 0 to "
        "weigh all nodes alike",
    )


def stage_timeouts(
    timeout: float, timeouts: Mapping[str | Stage, float] | None, known: tuple[Stage, ...] = STAGES
) -> dict[Stage, float | None]:
    """Return the seconds that each stage waits; None for UPLOAD means what `start` is told."""
    result: dict[Stage, float | None] = dict.fromkeys(known, timeout)
    result[Stage.UPLOAD] = None
    for name, seconds in (timeouts or {}).items():
        stage = name if isinstance(name, Stage) else Stage.__members__.get(name)
        if stage not in result:
            raise InvalidInput("timeouts", f"must be given for {', '.join(s.name for s in known)}, not {name!r}")
        result[stage] = seconds
    for limit in result.values():
        _require_positive(limit)
    return result


def _require_positive(seconds: Any) -> None:
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise InvalidInput("timeouts", f"must be positive seconds, not {seconds!r}")
