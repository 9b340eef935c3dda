"""How much noise keeps (ε, δ) over the rounds of a run, and whether anything can be learnt under it.

    noise variance of the mean = K × (survivors of a group / H) × that of a trusted server

with K groups and H honest users in every sum that can be opened (docs/differential-privacy.md): few, large groups. The
fraction α cancels. What decides whether a model learns is the norm of a trusted server's noise beside the clip C of an
update: √d·z·C/N for the mean of N users. Above three clips a run is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, isfinite, log10, sqrt
from typing import Final

from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS
from sparsesecagg.privacy.accountant import l1_bound, noise_for, sampling_delta
from sparsesecagg.privacy.anonymity import availability
from sparsesecagg.privacy.mechanism import Mechanism
from sparsesecagg.privacy.skellam import DISTANCE, LARGEST_VARIANCE
from sparsesecagg.protocol.parameters import LARGEST_CLIP, Parameters

LARGEST_NORM: Final = 3.0
"""Noise of a larger norm, in clips, drowns what the users send."""
NOISY_GROUP: Final = 1000
"""Users of a group, at most, in plans with noise; more only where the anonymity needs them."""
USUAL_DELTA: Final = 1e-5
MEANING: Final = "user level, zero-out neighbours, no amplification by sampling"
"""What ε and δ are about: said in every output."""
_LARGEST_MULTIPLIER: Final = 1e4


@dataclass(frozen=True)
class NoiseGoal:
    """Keep (ε, δ)-differential privacy for each user, over all rounds of a run."""

    epsilon: float
    rounds: int
    delta: float = USUAL_DELTA
    """Includes the chance that a group has more colluders than planned."""
    clip_norm: float = 1.0
    """C: the largest 2-norm of an update."""

    def check(self, clients: int, failure_log2: float) -> None:
        """Raise `InvalidInput` for what no noise can keep."""
        if not (self.epsilon > 0 and isfinite(self.epsilon)):
            raise InvalidInput("epsilon", f"must be above 0, got {self.epsilon:g}")
        if not 2**failure_log2 < self.delta < 1 / clients:
            raise InvalidInput(
                "delta",
                f"must be above 2^{failure_log2:g}, the chance that the groups fail, and below 1/{clients}, one over "
                f"the users, got {self.delta:g}",
            )
        if self.rounds < 1:
            raise InvalidInput("rounds", f"must be at least 1, got {self.rounds}")
        if not 0 < self.clip_norm <= LARGEST_CLIP:
            raise InvalidInput("clip_norm", f"must be above 0 and at most 1e30, got {self.clip_norm:g}")


@dataclass(frozen=True)
class NoisePlan:
    """The noise of a run, and what it costs."""

    goal: NoiseGoal
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
        """Why nothing can be learnt under this noise; None if it can."""
        if self.norm_in_clips > LARGEST_NORM:
            return (
                f"noise: it would drown the updates, with a norm of {self.norm_in_clips:.3g} clips in the mean of a "
                f"trusted server where at most {LARGEST_NORM:g} can learn, at {self.what}"
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
        return f"epsilon {goal.epsilon:g} and delta {goal.delta:g} over {rounds} ({MEANING})"


def plan_noise(goal: NoiseGoal, params: Parameters, honest: int, failure_log2: float) -> NoisePlan:
    """Return the least noise that keeps the goal in a run of these groups, `honest` users being in every sum.

    δ pays for the chance 2^failure_log2 that the groups fail, as each user's own budget does, and for inexact draws.
    """
    fraction, length, clients = params.shape.fraction(), params.shape.length, params.clients
    draws = sampling_delta(goal.epsilon, float(clients) * goal.rounds * length, DISTANCE)
    delta = goal.delta - 2**failure_log2 - draws
    if delta <= 0:
        raise InvalidInput("delta", f"must be above 2^{failure_log2:g} plus {draws:.2g} for draws, got {goal.delta:g}")
    multiplier = _multiplier(goal.epsilon, delta, goal.rounds, length)
    mechanism = Mechanism(goal.clip_norm, multiplier, fraction, length)
    survivors = clients / params.groups * availability(params.dropout)
    return NoisePlan(
        goal=goal,
        multiplier=multiplier,
        honest=honest,
        std_vs_trusted_server=sqrt(params.groups * survivors / honest),
        norm_in_clips=sqrt(params.dim) * multiplier / clients,
        modulus_bits=max(WORD_BITS[0], mechanism.largest_sum(params.contributors).bit_length() + 1),
        variance=mechanism.variance / honest,
    )


@lru_cache(maxsize=256)
def _multiplier(epsilon: float, delta: float, rounds: int, length: int) -> float:
    """Return z, rounded up to four digits."""
    norm = sqrt(Mechanism(1.0, 1.0, 1.0, length).squared_norm)
    return rounded(noise_for(epsilon, delta, rounds, norm, l1_bound(norm, length)), 4, up=True)


def rounded(value: float, digits: int, *, up: bool) -> float:
    """Return a positive number with so many significant digits, never beyond the side that it is rounded to."""
    places = digits - 1 - floor(log10(value))
    whole = (ceil if up else floor)(value * 10.0**places)
    return round(whole / 10.0**places, max(0, places))
