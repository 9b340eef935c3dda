"""How much noise keeps (ε, δ) over the rounds of a run, and whether a model is likely to learn under it.

    noise variance of the mean = K × (survivors of a group / H) × that of a trusted server

with K groups and H honest users in every sum that can be opened (docs/differential-privacy.md): few, large groups. The
fraction α cancels. What decides whether a model learns is the norm of a trusted server's noise beside the clip C of an
update: √d·z·C/N for the mean of N users. Above three clips a run is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, floor, inf, log10, sqrt
from typing import Final, Literal, get_args

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import require
from sparsesecagg.field import WORD_BITS
from sparsesecagg.privacy.accountant import l1_bound, noise_for, require_epsilon, usable_delta
from sparsesecagg.privacy.anonymity import availability
from sparsesecagg.privacy.mechanism import LARGEST_VARIANCE, Mechanism
from sparsesecagg.protocol.parameters import LARGEST_CLIP, Parameters, RoundOptions, check_kinds
from sparsesecagg.protocol.policy import sharing_noise

LARGEST_NORM: Final = 3.0
"""Under noise of a larger norm, in clips, a model rarely learns: a rule of thumb (docs/planning.md)."""
NOISY_GROUP: Final = 1000
"""Users of a group, at most, in plans with noise; more only where the anonymity needs them."""
USUAL_DELTA: Final = 1e-5
FAILURE_LOG2: Final = -40.0
"""The chance per run that users allow their groups to fail, where nobody says otherwise."""
MEANING: Final = "user level, zero-out neighbours, no amplification by sampling"
"""What ε and δ are about: said in every output."""
Unit = Literal["user", "example"]
"""What zero-out neighbours differ in: all that a user sends, or one example of one user."""
_LARGEST_MULTIPLIER: Final = 1e4


@dataclass(frozen=True)
class DifferentialPrivacy:
    """Keep (ε, δ)-differential privacy for each user or example, over all rounds, by noise that the users add."""

    epsilon: float
    rounds: int
    """The noise is made for so many; the next one would exceed ε."""
    delta: float = USUAL_DELTA
    """Includes the chance that a group has more colluders than planned."""
    clip: float = 1.0
    """C: the largest 2-norm of an update, or of one example's part in it."""
    unit: Unit = "user"
    """What is protected: all that a user sends, or each single example, for 5 to 50 silos."""

    def __post_init__(self) -> None:
        """Check the types; ranges depend on the users (`check`)."""
        check_kinds(self, skip=("unit",))

    @property
    def meaning(self) -> str:
        """What ε and δ are about."""
        return MEANING.replace("user", self.unit, 1)

    def check(self, clients: int, failure_log2: float = FAILURE_LOG2) -> None:
        """Raise `InvalidInput` for what no noise can keep."""
        limits = f"above 2^{failure_log2:g}, the chance that the groups fail, and below 1/{clients}, one over the users"
        require("delta", 2**failure_log2 < self.delta < 1 / clients, f"must be {limits}, got {self.delta:g}")
        self.require_numbers()

    def require_numbers(self) -> None:
        """Raise `InvalidInput` for what no number of users could mend."""
        require_epsilon(self.epsilon)
        require("delta", 0 < self.delta < 1, f"must be in (0, 1), got {self.delta:g}")
        require("rounds", self.rounds >= 1, f"must be at least 1, got {self.rounds}")
        require("clip", 0 < self.clip <= LARGEST_CLIP, f"must be above 0 and at most 1e30, got {self.clip:g}")
        require("unit", self.unit in get_args(Unit), f"must be 'user' or 'example', got {self.unit!r}")


@dataclass(frozen=True)
class NoisePlan:
    """The noise of a run, and what it costs."""

    goal: DifferentialPrivacy
    multiplier: float
    """z: standard deviation of the noise in a sum, over what one user's slice can change in it."""
    honest: int
    """H: every sum has at least H honest users, and each user adds 1/H of a sum's noise variance."""
    std_vs_trusted_server: float
    """Standard deviation of the noise in the mean, over that of a trusted server at the same ε."""
    norm_in_clips: float
    """√d·z/N: the norm of a trusted server's noise in the mean, over the clip."""
    modulus_bits: int
    """The shortest word that holds sums with noise."""
    variance: float
    """Of the noise that one user adds to a coordinate."""

    @property
    def problem(self) -> str | None:
        """Why a plan with this noise is refused; None if it is not."""
        if self.norm_in_clips > LARGEST_NORM:
            return (
                f"noise: it would have a norm of {self.norm_in_clips:.3g} clips in the mean of a trusted server, and "
                f"above {LARGEST_NORM:g} a model rarely learns (a rule of thumb), at {self.what}"
            )
        beyond = self.variance > LARGEST_VARIANCE or self.multiplier > _LARGEST_MULTIPLIER
        if beyond or self.modulus_bits > WORD_BITS[-1]:
            return f"noise: there is more of it than a word of {WORD_BITS[-1]} bits has room for, at {self.what}"
        return None

    @property
    def what(self) -> str:
        """The promise, in words."""
        goal = self.goal
        rounds = "one round" if goal.rounds == 1 else f"{goal.rounds} rounds"
        return f"epsilon {goal.epsilon:g} and delta {goal.delta:g} over {rounds} ({goal.meaning})"


def plan_noise(goal: DifferentialPrivacy, params: Parameters, honest: int, failure_log2: float) -> NoisePlan:
    """Return the least noise that keeps the goal in a run of these groups, `honest` users being in every sum.

    δ pays for the chance 2^failure_log2 that the groups fail, as each user's own budget does, and for inexact draws.
    """
    known = goal.unit == "user"
    require("unit", known, "must be 'user' in a plan, which does not know how many examples users have")
    mechanism = _mechanism(goal, params, failure_log2)
    return NoisePlan(
        goal=goal,
        multiplier=mechanism.multiplier,
        honest=honest,
        std_vs_trusted_server=sqrt(params.clients * availability(params.dropout) / honest) if honest else inf,
        norm_in_clips=sqrt(params.dim) * mechanism.multiplier / params.clients,
        modulus_bits=_word_bits(mechanism, params, honest),
        variance=mechanism.variance / max(1, honest),
    )


def with_noise(
    options: RoundOptions, goal: DifferentialPrivacy, clients: int, dim: int, roster: Roster | None = None
) -> RoundOptions:
    """Return the options with the least noise that keeps the goal, in the shortest word that holds it."""
    bare = Parameters.create(clients, dim, replace(options, modulus_bits=WORD_BITS[-1]), roster=roster)
    goal.check(clients)
    mechanism = _mechanism(goal, bare, FAILURE_LOG2)
    most, z = _LARGEST_MULTIPLIER, mechanism.multiplier
    got = f"got {goal.epsilon:g}, which needs {z:,g}"
    require("epsilon", z <= most, f"must allow noise of at most {most:,g} clips, {got}")
    needed = _word_bits(mechanism, bare, sharing_noise(bare, roster))
    fits = not options.modulus_bits or options.modulus_bits >= min(needed, WORD_BITS[-1])
    require("modulus_bits", fits, f"must be {needed} or more for the noise, got {options.modulus_bits}")
    each = mechanism.per_example
    return replace(options, modulus_bits=needed, clip_norm=goal.clip, noise_multiplier=z, per_example=each)


def _word_bits(mechanism: Mechanism, params: Parameters, honest: int) -> int:
    """Return the shortest word that holds sums with noise."""
    if mechanism.per_example:  # Nobody says how many examples there are.
        return WORD_BITS[-1]
    return max(WORD_BITS[0], mechanism.largest_sum(params.contributors, honest).bit_length() + 1)


def _mechanism(goal: DifferentialPrivacy, params: Parameters, failure_log2: float) -> Mechanism:
    """Return the mechanism with the least noise that keeps the goal."""
    delta, each = usable_delta(goal.delta, goal.epsilon, failure_log2), goal.unit == "example"
    multiplier = _multiplier(goal.epsilon, delta, goal.rounds, params.shape.length, each)
    return Mechanism(goal.clip, multiplier, params.shape.fraction(), params.shape.length, each)


@lru_cache(maxsize=256)
def _multiplier(epsilon: float, delta: float, rounds: int, length: int, per_example: bool) -> float:
    """Return z, rounded up to four digits."""
    norm = sqrt(Mechanism(1.0, 1.0, 1.0, length, per_example).squared_norm)
    return rounded(noise_for(epsilon, delta, rounds, norm, l1_bound(norm, length)), 4, up=True)


def rounded(value: float, digits: int, *, up: bool) -> float:
    """Return a positive number with so many significant digits, never beyond the side that it is rounded to."""
    places = digits - 1 - floor(log10(value))
    whole = (ceil if up else floor)(value * 10.0**places)
    return round(whole / 10.0**places, max(0, places))
