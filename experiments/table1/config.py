"""Table 1: what a user uploads per round with the CIFAR-10 model, in the worst case over users and rounds.

Sizes follow from the number of parameters alone, so no data is needed and nothing is trained: the updates are noise.
The paper names McMahan's network for CIFAR-10, which has about 10⁶ parameters, and prints 0.66 MB; ours has 165,122
parameters, the size that 0.66 MB of 32-bit words stand for.
"""

from __future__ import annotations

from dataclasses import dataclass

PAPER_MB = {"secagg": {25: 0.66, 50: 0.66, 75: 0.66, 100: 0.66}, "bitmap": {25: 0.08, 50: 0.082, 75: 0.083, 100: 0.083}}
"""The paper's Table 1, as printed."""


@dataclass(frozen=True)
class Config:
    cohorts: tuple[int, ...] = (25, 50, 75, 100)
    rounds: int = 5
    dim: int | None = None
    """None: what the CIFAR-10 network has, for which torch is needed."""
    alpha: float = 0.1
    """Of both sparse patterns."""
    sliced_bits: tuple[int, ...] = (32, 16)
    dropout: float = 0.3


SCALES = {
    "quick": Config(cohorts=(25, 50), rounds=1, dim=165_000),
    "default": Config(rounds=3),
}
