"""What the planner is asked for, a `Goal`, and what it answers, a `Plan`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.groups import SMALLEST_GROUP
from sparsesecagg.planning.noise import FAILURE_LOG2, DifferentialPrivacy, NoisePlan
from sparsesecagg.privacy.anonymity import SERVER_MODELS, ServerModel, planned_colluders
from sparsesecagg.protocol.parameters import MAX_CLIENTS, MAX_DIM, RoundOptions

LOWEST_FAILURE_LOG2: Final = -1000.0
"""Smaller probabilities, and what can't happen, are reported as this one: a true bound, and a number in JSON."""
SMALLEST_COHORT: Final = SMALLEST_GROUP


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
    clip: float | None = None
    """The largest magnitude of an update's coordinate; passed on."""
    levels: int | None = None
    """Minimum number of quantisation levels from 0 to the clip; None: by size of the groups."""
    group_size: int | None = None
    """Users of a group, at most; None: the planner chooses."""
    noise: DifferentialPrivacy | None = None
    """Differential privacy that the users' own noise has to keep; None: no noise."""

    def __post_init__(self) -> None:
        """Refuse what no plan can be made for."""
        if not SMALLEST_COHORT <= self.clients <= MAX_CLIENTS:
            raise InvalidInput("clients", f"must be from {SMALLEST_COHORT} to {MAX_CLIENTS}, got {self.clients}")
        if not 1 <= self.dim <= MAX_DIM:
            raise InvalidInput("dim", f"must be from 1 to 2^40, got {self.dim}")
        for option, rate in (("dropout", self.dropout), ("colluding", self.colluding)):
            if not 0 <= rate < 0.5:
                raise InvalidInput(option, f"must be in [0, 0.5), got {rate:g}")
        if not 1 <= self.min_anonymity <= self.clients:
            raise InvalidInput(
                "min_anonymity", f"must be from 1 to the {self.clients} clients, got {self.min_anonymity}"
            )
        if not LOWEST_FAILURE_LOG2 <= self.failure_log2 < 0:
            raise InvalidInput(
                "failure_log2", f"must be at least {LOWEST_FAILURE_LOG2:g} and below 0, got {self.failure_log2:g}"
            )
        if self.server not in SERVER_MODELS:
            raise InvalidInput("server", f"must be one of {', '.join(SERVER_MODELS)}, got {self.server!r}")
        if self.levels is not None and self.levels < 1:
            raise InvalidInput("levels", f"must be at least 1, got {self.levels}")
        if self.noise is not None:
            self.noise.check(self.clients, self.failure_log2)
            for option, remedy in (("levels", "noise decides them"), ("clip", "use --clip-norm")):
                if getattr(self, option) is not None:
                    raise InvalidInput(option, f"must not be given with --epsilon: {remedy}")

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
