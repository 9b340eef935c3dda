"""Figure 4: how many honest users share a coordinate, and how many values are revealed, against α.

None of it depends on data or training: both follow from the patterns, dropouts and adversaries. So rounds of patterns
are drawn with the protocol's own samplers, and at some settings whole rounds are run and attacked (the audit).
"""

from __future__ import annotations

from dataclasses import dataclass

PAPER = {"alpha": 0.2, "clients": 100, "singled_out": 0.0007}
"""The one figure that the paper states in words: 0.07 % at α = 0.2, N = 100."""

ERROR_RATE = 1e-3
"""The chance that the comparison with Theorem 2 fails although the theorem holds, over all its points together."""


@dataclass(frozen=True)
class Config:
    alphas: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
    cohorts: tuple[int, ...] = (25, 50, 75, 100)
    """The largest one is that of the figure's left half."""
    dropouts: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4)
    dropout: float = 0.3
    """Of the right half; one of `dropouts`."""
    colluding: float = 1 / 3
    rounds: int = 60
    """Rounds of patterns per point."""
    dim: int = 4000
    audit_alphas: tuple[float, ...] = (0.1, 0.2, 0.4)
    audit_cohorts: tuple[int, ...] = (25, 100)
    audit_rounds: int = 2
    """Whole rounds that are attacked, per point."""
    audit_dim: int = 1200


SCALES = {
    "quick": Config(
        alphas=(0.1, 0.2, 0.4),
        cohorts=(25, 60),
        dropouts=(0.0, 0.3),
        rounds=10,
        dim=1000,
        audit_alphas=(0.2,),
        audit_cohorts=(25,),
        audit_rounds=2,
        audit_dim=240,
    ),
    "default": Config(),
}
