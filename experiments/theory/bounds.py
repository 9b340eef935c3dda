"""Theorem 4: how far training with sparsified, quantised sums is from the optimum.

The theorem speaks of any pattern through its two selection moments only, so `pairwise` and `sliced` can
be compared in the same formula. Symbols as in the paper: L, μ, G, E, Γ, σ_i, β_i, c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.theory.formulas import SelectionMoments
from sparsesecagg.errors import InvalidInput


@dataclass(frozen=True)
class Problem:
    """What Assumptions 1–4 say about the objective and the local training."""

    smoothness: float
    """L of Assumption 1."""
    convexity: float
    """μ of Assumption 2, at most L."""
    gradient_bound: float
    """G of Assumption 4: E‖∇F_i(w, ξ)‖² ≤ G²."""
    local_steps: int
    """E, the local steps between two rounds."""
    divergence: float = 0.0
    """Γ = F* − Σ β_i F_i*, 0 if the users' data are alike."""
    initial_distance: float = 0.0
    """‖w⁰ − w*‖²."""

    def __post_init__(self) -> None:
        """Refuse constants that the assumptions exclude."""
        if not 0 < self.convexity <= self.smoothness:
            raise InvalidInput("convexity", f"must be above 0 and at most the smoothness {self.smoothness:g}")
        if self.local_steps < 1:
            raise InvalidInput("local_steps", f"must be at least 1, not {self.local_steps}")

    @property
    def offset(self) -> float:
        """ν = max(8L/μ, E)."""
        return max(8 * self.smoothness / self.convexity, self.local_steps)

    def learning_rate(self, step: int) -> float:
        """η^(t) = 2/(μ(ν + t))."""
        return 2 / (self.convexity * (self.offset + step))


def gradient_noise_constant(problem: Problem, weights: NDArray[np.float64], noise: NDArray[np.float64]) -> float:
    """Return B = Σ β_i²σ_i² + 6LΓ + 8(E−1)²G²; `noise` holds the σ_i², one per user."""
    return (
        float(np.sum(weights**2 * noise))
        + 6 * problem.smoothness * problem.divergence
        + 8 * (problem.local_steps - 1) ** 2 * problem.gradient_bound**2
    )


def selection_factor(moments: SelectionMoments, weights: NDArray[np.float64]) -> float:
    """Return Σ_i (β_i²(1/p′ − 1) + Σ_{j≠i} β_iβ_j(p̃/p′² − 1)), the sampling part of C.

    The proof replaces products of two users' gradients by their squares, which needs p̃ ≥ p′². Where users
    exclude each other, p̃ < p′²; then Σ_{i≠j} x_i x_j ≥ −Σ x_i² gives the bound Σ β_i²(1/p′ −
    p̃/p′²).
    """
    squares = float(np.sum(weights**2))
    excess = moments.correlation_excess
    if excess < 0:
        return squares * (1 / moments.participation - 1 - excess)
    return squares * (1 / moments.participation - 1) + (float(np.sum(weights)) ** 2 - squares) * excess


def sparsity_constant(
    problem: Problem,
    moments: SelectionMoments,
    weights: NDArray[np.float64],
    *,
    dim: int,
    quantisation_level: float,
    step: int,
) -> float:
    """Return C of Theorem 4 at local step t: quantisation noise over η² plus 4E²G² × `selection_factor`.

    The first part grows with t², because a fixed step of quantisation weighs more as the learning rate
    falls. So at a fixed c the theorem bounds the distance but does not send it to 0.
    """
    quantisation = len(weights) * dim * moments.participation / (4 * quantisation_level**2)
    sampling = 4 * problem.local_steps**2 * problem.gradient_bound**2 * selection_factor(moments, weights)
    return quantisation / problem.learning_rate(step) ** 2 + sampling


def lemma_2_bound(
    problem: Problem,
    moments: SelectionMoments,
    weights: NDArray[np.float64],
    *,
    dim: int,
    quantisation_level: float,
    step: int,
) -> float:
    """Return Lemma 2's bound on E‖w̄ − v̄‖², the variance that one round's sparse sum adds: η²·C."""
    constant = sparsity_constant(problem, moments, weights, dim=dim, quantisation_level=quantisation_level, step=step)
    return constant * problem.learning_rate(step) ** 2


def convergence_bound(
    problem: Problem,
    moments: SelectionMoments,
    weights: NDArray[np.float64],
    noise: NDArray[np.float64],
    *,
    dim: int,
    quantisation_level: float,
    steps: int,
) -> float:
    """Return Theorem 4's bound on E[F(w^(J))] − F*, J = `steps` local steps, with C at t = J, its largest."""
    constants = gradient_noise_constant(problem, weights, noise)
    constants += sparsity_constant(
        problem, moments, weights, dim=dim, quantisation_level=quantisation_level, step=steps
    )
    condition = problem.smoothness / problem.convexity
    distance = constants / problem.convexity + 2 * problem.smoothness * problem.initial_distance
    return 2 * condition / (problem.offset + steps) * distance
