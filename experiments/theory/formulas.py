"""The paper's theorems as functions: the selection moments of Lemmas 1 and 2, Theorem 1, Theorem 2's limit.

The symbols are the paper's: N `clients`, d `dim`, α `alpha`, θ `dropout`, γ `colluding`. Everything here is a statement
about one coordinate, so it needs no data. Theorem 4 is in bounds.py. Theorem 3 (computation) is a complexity class, not
a figure; the benchmarks measure it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.audit.theory import edge_probability, other_honest_survivors, selection_probability
from sparsesecagg.patterns.groups import group_sizes
from sparsesecagg.privacy.anonymity import colluder_count


@dataclass(frozen=True)
class SelectionMoments:
    """How users take part at one coordinate, dropouts included: all that Lemmas 1 and 2 need of a pattern."""

    participation: float
    """p′ = E[D_i M_i(ℓ)]: one user selects the coordinate and survives."""
    joint: float
    """p̃ = E[D_i M_i(ℓ) D_j M_j(ℓ)], i ≠ j: two users do."""

    @property
    def correlation_excess(self) -> float:
        """p̃/p′² − 1, the factor of Lemma 2's mixed terms: above 0 where users are tied together."""
        return self.joint / self.participation**2 - 1


def pairwise_moments(alpha: float, clients: int, dropout: float) -> SelectionMoments:
    """Return p′ and p̃ of the published pattern (Theorem 4): two users are tied by their common edge."""
    edge = edge_probability(alpha, clients)
    neither_edge = 1 - edge
    joint = 1 - 2 * neither_edge ** (clients - 1) + neither_edge ** (2 * clients - 3)
    return SelectionMoments(
        (1 - dropout) * selection_probability(alpha, clients),
        (1 - dropout) ** 2 * joint,
    )


def sliced_moments(clients: int, groups: int, block: tuple[int, int], dropout: float) -> SelectionMoments:
    """Return p′ and p̃ of slices, on average over the coordinates and over the draw of the groups.

    A group sends a of every L coordinates (`block`), shifted by ⌊g·L/K⌋. The senders of a coordinate are whole groups:
    with one group everybody or nobody, so two users meet far more often than independent ones would.
    """
    part, length = block
    shifts = [number * length // groups for number in range(groups)]
    sizes = group_sizes(clients, groups)
    senders = [
        sum(size for size, shift in zip(sizes, shifts, strict=True) if (offset - shift) % length < part)
        for offset in range(length)
    ]
    joint = sum(count * (count - 1) for count in senders) / (length * clients * (clients - 1))
    return SelectionMoments((1 - dropout) * part / length, (1 - dropout) ** 2 * joint)


def sampling_variance(moments: SelectionMoments, contributions: NDArray[np.float64]) -> float:
    """Return the exact variance of Σ D_i M_i x_i / p′ for x_i = β_i·z_i (Lemma 2 before its inequalities)."""
    squares = float(np.sum(contributions**2))
    products = float(np.sum(contributions)) ** 2 - squares
    return squares * (1 / moments.participation - 1) + products * moments.correlation_excess


def anonymity(alpha: float, clients: int, dropout: float, colluding: float) -> float:
    """Return the paper's T for finite N: p(1−θ)(1−γ)N honest contributors, on average (Theorem 2's proof).

    It counts contributors, not users whom masks tie together; see `pairwise_revealed_fraction`.
    """
    return selection_probability(alpha, clients) * (1 - dropout) * (1 - colluding) * clients


def pairwise_singled_out_fraction(alpha: float, clients: int, dropout: float, colluding: float) -> float:
    """Return the share of honest survivors' values that are singled out, as the paper counts it.

    A value is singled out if no other honest survivor sends the coordinate. Given r other honest survivors,
    all of them are isolated in the coordinate's graph if none of the r(r−1)/2 + r(N−r) edges that touch
    them is there; the sender still needs one edge to the remaining N−1−r users. Exact.
    """
    edge = edge_probability(alpha, clients)
    others, probability = other_honest_survivors(clients, colluder_count(clients, colluding), dropout)
    no_edge = 1 - edge
    isolated = no_edge ** (others * (others - 1) / 2 + others * (clients - others))
    sends = 1 - no_edge ** (clients - 1.0 - others)
    return float(np.sum(probability * isolated * sends)) / selection_probability(alpha, clients)


def anonymity_limit(alpha: float, clients: int, dropout: float, colluding: float) -> float:
    """Return T = (1 − e^−α)(1−θ)(1−γ)N, as Theorem 2 states it; a little below `anonymity`."""
    return -math.expm1(-alpha) * (1 - dropout) * (1 - colluding) * clients


def bernoulli_divergence(x: float, y: float) -> float:
    """Return D(x ‖ y), the KL divergence of two Bernoulli distributions, in nats."""
    total = 0.0
    for a, b in ((x, y), (1 - x, 1 - y)):
        if a > 0:
            total += math.inf if b <= 0 else a * math.log(a / b)
    return max(0.0, total)


def oversize_probability(
    alpha: float, clients: int, dim: int, epsilon: float, form: Literal["kl", "hoeffding"] = "kl"
) -> float:
    """Bound P[a user of `pairwise` sends more than (p + ε)d values] from above (Theorem 1).

    "kl" is e^(−D(p+ε ‖ p)d), the first inequality of the proof; "hoeffding" the looser e^(−2ε²d). As p ≤ α
    both also bound P[more than (α + ε)d].
    """
    if not epsilon > 0:
        raise InvalidInput("epsilon", f"must be above 0, not {epsilon:g}")
    p = selection_probability(alpha, clients)
    if p + epsilon >= 1:
        return 0.0  # Nobody sends more than d values.
    exponent = bernoulli_divergence(p + epsilon, p) if form == "kl" else 2 * epsilon**2
    return math.exp(-exponent * dim)
