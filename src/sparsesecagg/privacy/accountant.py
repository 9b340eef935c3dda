"""How much privacy noisy sums cost: Rényi differential privacy of the Skellam mechanism, and what follows from it.

One release is the sum of one group in one round: integers with a user's vector of norms Δ₁, Δ₂ in it, and Skellam noise
of variance μ. For integer orders a > 1 (arXiv 2110.04995, Corollary 3.6)

    RDP(a) ≤ aΔ₂²/2μ + ((2a − 1)Δ₂² + 6Δ₁)/4μ² = a·ρ + ξ,  ρ = Δ₂²(1 + 1/μ)/2μ,  ξ = max(0, (6Δ₁ − Δ₂²)/4μ²)

So what rounds cost adds up in two numbers, and a ledger keeps these (docs/differential-privacy.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, expm1, inf, log, log1p, sqrt

from sparsesecagg.errors import require

ORDERS = tuple(range(2, 1025))
"""Rényi orders that are tried; beyond them ε is below 0.02 at any usual δ."""
DISTANCE = 2.0**-110
"""The most by which one draw of noise is off, in total variation."""
MOST_DRAWS = 2.0**50
LARGEST_EPSILON = 25.0
"""More promises nothing that anybody could use, and the tables of noise are not exact enough for it."""


@dataclass(frozen=True)
class Cost:
    """What releases cost: Rényi divergence of order a at most a·rho + xi. Costs of several releases add up."""

    rho: float = 0.0
    xi: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.rho + other.rho, self.xi + other.xi)

    def times(self, rounds: int) -> Cost:
        """Return the cost of this many releases."""
        return Cost(self.rho * rounds, self.xi * rounds)

    def epsilon(self, delta: float) -> float:
        """Return the least ε for which the releases are (ε, δ)-differentially private (arXiv 2004.00010, Prop. 12)."""
        return self.spent(delta)[0]

    def spent(self, delta: float) -> tuple[float, int]:
        """Return that ε, and the order that it was found at."""
        require("delta", 0 < delta < 1, f"must be in (0, 1), got {delta}")
        best, order = inf, ORDERS[0]
        for a in ORDERS:
            divergence = a * self.rho + self.xi
            if delta**2 + expm1(-divergence) > 0:  # δ ≥ √(1 − e^(−KL)) bounds everything.
                return 0.0, a
            found = divergence + log1p(-1 / a) - log(delta * a) / (a - 1)
            if found < best:
                best, order = found, a
        return max(0.0, best), order


def skellam_cost(variance: float, l2: float, l1: float) -> Cost:
    """Return the cost of one sum with noise of this variance and a user's vector of at most these norms."""
    if not variance > 0:
        return Cost(inf, inf)
    rho = l2**2 * (1 + 1 / variance) / (2 * variance)
    return Cost(rho, max(0.0, (6 * l1 - l2**2) / (4 * variance**2)))


def noise_for(epsilon: float, delta: float, rounds: int, l2: float, l1: float) -> float:
    """Return the least noise multiplier z (deviation of the noise over Δ₂) that keeps (ε, δ) over all rounds."""
    require_epsilon(epsilon)
    require("rounds", rounds >= 1, f"must be at least 1, got {rounds}")

    def spent(multiplier: float) -> float:
        return skellam_cost((multiplier * l2) ** 2, l2, l1).times(rounds).epsilon(delta)

    require("epsilon", spent(1e9) <= epsilon, f"of {epsilon:g} can't be kept at delta {delta:g}")
    return least(lambda multiplier: spent(multiplier) <= epsilon)


def least(is_enough: Callable[[float], bool], low: float = 0.0, high: float = 1.0) -> float:
    """Return the least number above `low` that is enough, from above; `high` grows until it is."""
    while not is_enough(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def require_epsilon(epsilon: float, option: str = "epsilon") -> None:
    """Raise `InvalidInput` for an ε that can't be kept."""
    require(option, 0 < epsilon <= LARGEST_EPSILON, f"must be above 0 and at most {LARGEST_EPSILON:g}, got {epsilon:g}")


def l1_bound(l2: float, length: int) -> float:
    """Return the largest 1-norm of an integer vector of this length with this 2-norm."""
    return min(sqrt(length) * l2, l2**2)


def usable_delta(delta: float, epsilon: float, failure_log2: float) -> float:
    """Return what is left of δ for the noise, less the chance that the groups fail and what inexact draws may add.

    Draws that are off by a total variation τ add (1 + e^ε)·τ. Nobody draws more than 2^50 numbers in all runs of its
    data, so that users and planner can charge the same.
    """
    draws = (1 + exp(epsilon)) * MOST_DRAWS * DISTANCE
    left = delta - 2**failure_log2 - draws
    require("delta", left > 0, f"must be above 2^{failure_log2:g} plus {draws:.2g} for draws, got {delta:g}")
    return left
