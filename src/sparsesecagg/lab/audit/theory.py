"""The published pattern in closed form: who sends a coordinate, and who is truly revealed.

The symbols are the paper's: N `clients`, α `alpha`, θ `dropout`, γ `colluding`; A `colluders` = γN rounded.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import require
from sparsesecagg.privacy.anonymity import colluder_count, log_binomial
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.policy import kept_by


def edge_probability(alpha: float, clients: int) -> float:
    """Return α/(N−1), the chance that two users share a coordinate in `pairwise` (eq. of b_ij)."""
    require("clients", clients >= 2, f"must be at least 2, not {clients}")
    require("alpha", 0 < alpha <= 1, f"must be above 0 and at most 1, not {alpha:g}")
    return alpha / (clients - 1)


def selection_probability(alpha: float, clients: int) -> float:
    """Return p = 1 − (1 − α/(N−1))^(N−1), the chance that a user of `pairwise` sends a coordinate."""
    edge = edge_probability(alpha, clients)
    return 1.0 if edge == 1 else -math.expm1((clients - 1) * math.log1p(-edge))


def other_honest_survivors(clients: int, colluders: int, dropout: float) -> tuple[NDArray[np.int64], ...]:
    """Return r = 0 … N−A−1 and P[r of the other honest users survive]."""
    others = np.arange(clients - colluders)
    probability = np.exp(log_binomial(clients - colluders - 1, others, 1 - dropout))
    return others, probability


def pairwise_revealed_fraction(alpha: float, clients: int, dropout: float, colluding: float) -> float:
    """Return the share of honest survivors' values that server and colluders read in the clear.

    Exact. A value is revealed if every user that shares a mask with it there has dropped or colludes,
    whoever else sends the coordinate. Given r other honest survivors: no edge to them, and at least one to
    the others.
    """
    edge = edge_probability(alpha, clients)
    others, probability = other_honest_survivors(clients, colluder_count(clients, colluding), dropout)
    no_edge = 1 - edge
    alone = no_edge ** others.astype(float) - no_edge ** (clients - 1)
    return float(np.sum(probability * alone)) / selection_probability(alpha, clients)


def expected_fraction(params: Parameters, colluding: float) -> float | None:
    """Return the share of uploaded values that theory says is revealed on average; None where no promise holds."""
    if not params.shape.protects:
        return pairwise_revealed_fraction(params.alpha, params.clients, params.dropout, colluding)
    return 0.0 if kept_by(params, "semi-honest", colluding).anonymity > 1 else None
