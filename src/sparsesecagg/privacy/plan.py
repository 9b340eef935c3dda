"""What the planner is asked for, a `Goal`, and what it answers, a `Plan`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns import DEFAULT_STRIPES, SMALLEST_COMMITTEE
from sparsesecagg.privacy.theory import colluder_count
from sparsesecagg.protocol.parameters import MAX_CLIENTS, MAX_DIM

DEFAULT_FAILURE_LOG2: Final = -40.0
DEFAULT_LEVELS: Final = 8
LOWEST_FAILURE_LOG2: Final = -1000.0
"""Smaller probabilities are reported as this one: still a true bound, and a number in every format."""


@dataclass(frozen=True)
class Goal:
    """Keep `min_anonymity` honest survivors in every block, except with probability 2^failure_log2."""

    clients: int
    dim: int
    dropout: float
    """θ: every user drops out with this probability, independently of the others."""
    colluding: float
    """γ: this fraction of the users tells the server all they know."""
    min_anonymity: int
    """T: the server learns sums over at least this many honest users."""
    failure_log2: float = DEFAULT_FAILURE_LOG2
    clip: float = 1.0
    """Largest magnitude of an update's coordinate."""
    levels: int = DEFAULT_LEVELS
    """Least number of quantisation steps from 0 to the clip; from 0 to 1 if the clip is above 1."""
    stripes: int = DEFAULT_STRIPES

    def __post_init__(self) -> None:
        """Refuse what no plan can be made for."""
        if not SMALLEST_COMMITTEE <= self.clients <= MAX_CLIENTS:
            nearest = min(max(self.clients, SMALLEST_COMMITTEE), MAX_CLIENTS)
            raise InvalidInput(
                "clients",
                f"must be from {SMALLEST_COMMITTEE} to {MAX_CLIENTS}, not {self.clients}: use {nearest}",
            )
        if not 1 <= self.dim <= MAX_DIM:
            raise InvalidInput("dim", f"must be from 1 to 2^40, not {self.dim}: use {min(max(self.dim, 1), MAX_DIM)}")
        for option, rate in (("dropout", self.dropout), ("colluding", self.colluding)):
            if not 0 <= rate < 0.5:
                nearest_rate = 0.49 if rate >= 0.5 else 0
                raise InvalidInput(option, f"must be at least 0 and below 0.5, not {rate:g}: use {nearest_rate:g}")
        if not 1 <= self.min_anonymity <= self.clients:
            raise InvalidInput(
                "min_anonymity",
                f"must be from 1 to the {self.clients} clients, not {self.min_anonymity}: "
                f"use {min(max(self.min_anonymity, 1), self.clients)}",
            )
        if not LOWEST_FAILURE_LOG2 <= self.failure_log2 < 0:
            nearest_log2 = LOWEST_FAILURE_LOG2 if self.failure_log2 < 0 else -1
            raise InvalidInput(
                "failure_log2",
                f"must be at least {LOWEST_FAILURE_LOG2:g} and below 0, not {self.failure_log2:g}: "
                f"use {nearest_log2:g}",
            )
        if not 0 < self.clip < math.inf:
            raise InvalidInput("clip", f"must be positive and finite, not {self.clip:g}: use 1")
        if self.levels < 1:
            raise InvalidInput("levels", f"must be at least 1, not {self.levels}: use 1")
        if self.stripes < 1:
            raise InvalidInput("stripes", f"must be at least 1, not {self.stripes}: use 1")

    @cached_property
    def colluders(self) -> int:
        """A, the number of colluding users."""
        return colluder_count(self.clients, self.colluding)

    @property
    def log_budget(self) -> float:
        """The allowed probability of failure, as a natural logarithm."""
        return self.failure_log2 * math.log(2)

    @property
    def steps_per_side(self) -> float:
        """The quantisation steps that must fit between 0 and the clip: levels · max(1, clip)."""
        return self.levels * max(1.0, self.clip)


@dataclass(frozen=True)
class Nearest:
    """What would be feasible, changing one thing at a time; None where no value would do."""

    clients: int | None
    min_anonymity: int | None
    failure_log2: float | None


@dataclass(frozen=True)
class Plan:
    """Settings of a round and what they promise; None throughout if nothing feasible exists."""

    feasible: bool
    reason: str
    goal: Goal
    privacy_failure_log2: float
    """If not feasible: the least that can be had."""
    alpha: float | None = None
    share: Fraction | None = None
    """α as a/b: of the b blocks of a stripe each user sends a."""
    stripes: int | None = None
    committee_size: int | None = None
    """Members of the smaller committees, ⌊a·N/b⌋."""
    threshold: int | None = None
    neighbours: int | None = None
    """Degree of the share graph; None for a complete one."""
    min_survivors: int | None = None
    modulus_bits: int | None = None
    quantisation_levels: int | None = None
    """Steps between 0 and the clip."""
    upload_bytes: int | None = None
    share_bytes: int | None = None
    """Shares that one user sends, in SHARE_KEYS and UNMASK."""
    compression_vs_secagg: float | None = None
    """How many times larger the upload of the full model in 32-bit words is."""
    abort_probability: float | None = None
    lying_server_failure_log2: float | None = None
    nearest: Nearest | None = None

    @property
    def blocks_per_stripe(self) -> int | None:
        """The blocks, and committees, of each stripe: b."""
        return None if self.share is None else self.share.denominator

    @property
    def blocks_per_user(self) -> int | None:
        """How many blocks of each stripe a user sends: a."""
        return None if self.share is None else self.share.numerator

    def round_options(self) -> dict[str, Any]:
        """Return the keyword arguments for `RoundParameters.create`."""
        if not self.feasible:
            raise InvalidInput("min_anonymity", f"can't be kept: {self.reason}")
        return {
            "clients": self.goal.clients,
            "dim": self.goal.dim,
            "dropout": self.goal.dropout,
            "clip": self.goal.clip,
            "pattern": "committee",
            "alpha": self.alpha,
            "stripes": self.stripes,
            "threshold": self.threshold,
            "neighbours": self.neighbours,
            "min_survivors": self.min_survivors,
            "modulus_bits": self.modulus_bits,
        }
