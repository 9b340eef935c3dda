"""`pairwise`: the pattern of the SparseSecAgg paper. User i sends coordinate ℓ if b_ij(ℓ) = 1 for some peer j.

Published for reproduction and study. With mean degree α < 1 the mask graph at a coordinate is mostly single edges, so
the server learns the sums of small components and, after dropouts, many single values: see docs/privacy.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns.gaps import Positions, bernoulli_positions


def edge_probability(alpha_q32: int, degree: int) -> int:
    """Return P[b_ij(ℓ) = 1] = α/(N−1) in units of 2^−64, or α/k in a graph of degree k. α is in units of 2^−32."""
    return (alpha_q32 << 32) // degree


def selection_probability(alpha: float, degree: int) -> float:
    """Return p = 1 − (1 − α/(N−1))^(N−1), the probability that a user sends a given coordinate."""
    return 1.0 - (1.0 - alpha / degree) ** degree


def draw_positions(seeds: Sequence[PatternSeed], dim: int, probability: int) -> list[Positions]:
    """Return the coordinates at which b_ij is one, for each pair's seed."""
    return bernoulli_positions(seeds, dim, probability)
