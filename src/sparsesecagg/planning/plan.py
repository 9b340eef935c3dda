"""What the planner is asked for, a `Goal`, and what it answers, a `Plan`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.anonymity import SERVERS, Server, Structure, availability, colluder_count

DEFAULT_FAILURE_LOG2: Final = -40.0
LOWEST_FAILURE_LOG2: Final = -1000.0
"""Smaller probabilities are reported as this one: still a true bound, and a number in every format."""
SMALLEST_COHORT: Final = 3
MAX_CLIENTS: Final = 1 << 20
MAX_DIM: Final = 1 << 40
EXCLUDED: Final = 0.2
"""Of the roster, so many may be excluded in a run, all of them honest in the worst case (lying server)."""


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
    failure_log2: float = DEFAULT_FAILURE_LOG2
    clip: float = 1.0
    """Largest magnitude of an update's coordinate."""
    levels: int | None = None
    """Minimum number of quantisation steps from 0 to the clip, or to 1 if the clip is above 1; None: by committees."""
    server: Server = "lying"
    confirm: bool | None = None
    """Whether rounds have the third exchange, CONFIRM; None: whatever is better."""
    excluded: float | None = None
    """Fraction of the users that may be excluded; None: a fifth with a lying server, none with a curious one."""

    def __post_init__(self) -> None:
        """Refuse what no plan can be made for."""
        if not SMALLEST_COHORT <= self.clients <= MAX_CLIENTS:
            raise InvalidInput("clients", f"must be from {SMALLEST_COHORT} to {MAX_CLIENTS}, got {self.clients}")
        if not 1 <= self.dim <= MAX_DIM:
            raise InvalidInput("dim", f"must be from 1 to 2^40, got {self.dim}")
        for option, rate in (("dropout", self.dropout), ("colluding", self.colluding)):
            if not 0 <= rate < 0.5:
                raise InvalidInput(option, f"must be at least 0 and below 0.5, got {rate:g}")
        if not 1 <= self.min_anonymity <= self.clients:
            raise InvalidInput(
                "min_anonymity", f"must be from 1 to the {self.clients} clients, got {self.min_anonymity}"
            )
        if not LOWEST_FAILURE_LOG2 <= self.failure_log2 < 0:
            raise InvalidInput(
                "failure_log2", f"must be at least {LOWEST_FAILURE_LOG2:g} and below 0, got {self.failure_log2:g}"
            )
        if not 0 < self.clip < math.inf:
            raise InvalidInput("clip", f"must be positive and finite, got {self.clip:g}")
        if self.levels is not None and self.levels < 1:
            raise InvalidInput("levels", f"must be at least 1, got {self.levels}")
        if self.server not in SERVERS:
            raise InvalidInput("server", f"must be one of {', '.join(SERVERS)}, got {self.server!r}")
        if self.excluded is not None and not 0 <= self.excluded < 0.5:
            raise InvalidInput("excluded", f"must be at least 0 and below 0.5, got {self.excluded:g}")

    @cached_property
    def colluders(self) -> int:
        """C, the number of colluding users."""
        return colluder_count(self.clients, self.colluding)

    @cached_property
    def availability(self) -> float:
        """The chance that a user takes part in a round."""
        return availability(self.dropout)

    @cached_property
    def population(self) -> int:
        """How many users are left when as many honest ones were excluded as may be."""
        excluded = self.excluded if self.excluded is not None else (EXCLUDED if self.server == "lying" else 0.0)
        return max(self.colluders, self.clients - math.floor(excluded * self.clients + 1e-9))


@dataclass(frozen=True)
class Nearest:
    """What would be feasible, changing one thing at a time; None where no value would do."""

    clients: int | None
    min_anonymity: int | None
    failure_log2: float | None
    dropout: float | None
    colluding: float | None
    server: Server | None


@dataclass(frozen=True)
class Plan:
    """Groups, thresholds and words of a run, and what they promise; None throughout if nothing feasible exists."""

    feasible: bool
    reason: str
    goal: Goal
    privacy_failure_log2: float
    """Per run, against the goal's kind of server. If not feasible: the smallest that was found."""
    groups: Structure | None = None
    alpha: float | None = None
    """a/G: the fraction of the model that a user sends in a round."""
    slices_per_user: int | None = None
    """a."""
    confirm: bool | None = None
    modulus_bits: int | None = None
    quantisation_levels: int | None = None
    """Steps between 0 and the clip."""
    upload_bytes: int | None = None
    """The UPLOAD message of one user: values and tags."""
    all_bytes_sent: int | None = None
    all_bytes_received: int | None = None
    """Per round and user, without the model."""
    compression_vs_secagg: float | None = None
    """How many times larger the upload of the full model in 32-bit words is."""
    abort_probability: float | None = None
    """The chance, per round, that the slices of a given committee are lost."""
    nearest: Nearest | None = None

    @property
    def committees(self) -> int | None:
        """G."""
        return None if self.groups is None else self.groups.committees

    @property
    def pods(self) -> int | None:
        """How many pods there are."""
        return None if self.groups is None else len(self.groups.sizes)

    @property
    def committee_size(self) -> int | None:
        """m, of the smallest committee; others have one user more at most."""
        return None if self.groups is None else self.groups.smallest_committee

    @property
    def pod_size(self) -> int | None:
        """P, of the smallest pod; others have one user more at most."""
        return None if self.groups is None else self.groups.smallest_pod

    @property
    def min_survivors(self) -> int | None:
        """s, of the smallest committee."""
        return None if self.groups is None else self.groups.min_survivors

    @property
    def threshold(self) -> int | None:
        """t, of the smallest pod."""
        return None if self.groups is None else self.groups.threshold

    @property
    def exchanges(self) -> int | None:
        """Exchanges of a round in steady state: UPLOAD and UNMASK, perhaps CONFIRM between them."""
        return None if self.confirm is None else 2 + self.confirm

    def round_options(self) -> dict[str, Any]:
        """Return the keyword arguments for `Parameters.create`."""
        if not self.feasible:
            raise InvalidInput("min_anonymity", f"can't be kept: {self.reason}")
        return {
            "clients": self.goal.clients,
            "dim": self.goal.dim,
            "dropout": self.goal.dropout,
            "clip": self.goal.clip,
            "pattern": "committee",
            "committees": self.committees,
            "pods": self.pods,
            "served": self.slices_per_user,
            "threshold": self.threshold,
            "min_survivors": self.min_survivors,
            "confirm": self.confirm,
            "modulus_bits": self.modulus_bits,
        }
