"""The paper's theory as functions: Theorems 1 and 2, the selection moments, and who is singled out.

The symbols are the paper's: N `clients`, d `dim`, α `alpha`, θ `dropout`, γ `colluding`; A `colluders` = γN
rounded. Everything here is a statement about one coordinate, so it needs no data. Theorem 4 is in
convergence.py. Theorem 3 (computation) is a complexity class, not a figure; the benchmarks measure it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.anonymity import colluder_count
from sparsesecagg.patterns.sizes import even_parts, scaled
from sparsesecagg.privacy.tails import log_binomial, log_hypergeometric


def edge_probability(alpha: float, clients: int) -> float:
    """Return α/(N−1), the chance that two users share a coordinate in `pairwise` (eq. of b_ij)."""
    if clients < 2:
        raise InvalidInput("clients", f"must be at least 2, not {clients}")
    if not 0 < alpha <= 1:
        raise InvalidInput("alpha", f"must be above 0 and at most 1, not {alpha:g}")
    return alpha / (clients - 1)


def selection_probability(alpha: float, clients: int) -> float:
    """Return p = 1 − (1 − α/(N−1))^(N−1), the chance that a user of `pairwise` sends a coordinate."""
    edge = edge_probability(alpha, clients)
    return 1.0 if edge == 1 else -math.expm1((clients - 1) * math.log1p(-edge))


@dataclass(frozen=True)
class SelectionMoments:
    """How users take part at one coordinate, dropouts included: all that Lemmas 1 and 2 need of a pattern."""

    participation: float
    """p′ = E[D_i M_i(ℓ)]: one user selects the coordinate and survives."""
    joint: float
    """p̃ = E[D_i M_i(ℓ) D_j M_j(ℓ)], i ≠ j: two users do."""

    @property
    def correlation_excess(self) -> float:
        """p̃/p′² − 1, the factor of Lemma 2's mixed terms: above 0 for `pairwise`, below for `committee`."""
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


def committee_moments(clients: int, committees: int, served: int, dropout: float) -> SelectionMoments:
    """Return p′ and p̃ of the committee pattern, on average over the slices and over the draw of the groups.

    A user sends `served` = a of G slices, so p = a/G exactly. A slice is sent by a of the G committees, which together
    are a random set of users, so two users meet less often than independent ones would: Σ M(M−1) / (G·N(N−1)) over the
    sizes M of these sets, against (a/G)².
    """
    sizes = _committee_sizes(clients, committees)
    if not 1 <= served <= committees:
        raise InvalidInput("served", f"must be from 1 to {committees}, the number of committees, got {served}")
    senders = [sum((sizes * 2)[first : first + served]) for first in range(committees)]
    pairs = sum(count * (count - 1) for count in senders)
    joint = pairs / (committees * clients * (clients - 1)) if clients > 1 else 0.0
    return SelectionMoments((1 - dropout) * served / committees, (1 - dropout) ** 2 * joint)


def _committee_sizes(clients: int, committees: int) -> list[int]:
    if not 1 <= committees <= clients:
        raise InvalidInput("committees", f"must be from 1 to {clients}, the number of clients, got {committees}")
    return even_parts(clients, committees)


def sampling_variance(moments: SelectionMoments, contributions: NDArray[np.float64]) -> float:
    """Return the exact variance of Σ D_i M_i x_i / p′ for x_i = β_i·z_i (Lemma 2 before its inequalities)."""
    squares = float(np.sum(contributions**2))
    products = float(np.sum(contributions)) ** 2 - squares
    return squares * (1 / moments.participation - 1) + products * moments.correlation_excess


def expected_contributors(moments: SelectionMoments, clients: int) -> float:
    """Return the mean number of users, honest or not, whose value enters the sum at a coordinate: p′N."""
    return moments.participation * clients


def anonymity(alpha: float, clients: int, dropout: float, colluding: float) -> float:
    """Return the paper's T for finite N: p(1−θ)(1−γ)N honest contributors, on average (Theorem 2's proof).

    It counts contributors, not users whom masks tie together; see `pairwise_revealed_fraction`.
    """
    return selection_probability(alpha, clients) * (1 - dropout) * (1 - colluding) * clients


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


def _other_honest_survivors(clients: int, colluders: int, dropout: float) -> tuple[NDArray[np.int64], ...]:
    """Return r = 0 … N−A−1 and P[r of the other honest users survive]."""
    others = np.arange(clients - colluders)
    probability = np.exp(log_binomial(np.full_like(others, clients - colluders - 1), others, 1 - dropout))
    return others, probability


def pairwise_singled_out_fraction(alpha: float, clients: int, dropout: float, colluding: float) -> float:
    """Return the share of honest survivors' values that are singled out, as the paper counts it.

    A value is singled out if no other honest survivor sends the coordinate. Given r other honest survivors,
    all of them are isolated in the coordinate's graph if none of the r(r−1)/2 + r(N−r) edges that touch
    them is there; the sender still needs one edge to the remaining N−1−r users. Exact.
    """
    edge = edge_probability(alpha, clients)
    others, probability = _other_honest_survivors(clients, colluder_count(clients, colluding), dropout)
    no_edge = 1 - edge
    isolated = no_edge ** (others * (others - 1) / 2 + others * (clients - others))
    sends = 1 - no_edge ** (clients - 1.0 - others)
    return float(np.sum(probability * isolated * sends)) / selection_probability(alpha, clients)


def pairwise_revealed_fraction(alpha: float, clients: int, dropout: float, colluding: float) -> float:
    """Return the share of honest survivors' values that server and colluders read in the clear.

    Exact. A value is revealed if every user that shares a mask with it there has dropped or colludes,
    whoever else sends the coordinate. Given r other honest survivors: no edge to them, and at least one to
    the others.
    """
    edge = edge_probability(alpha, clients)
    others, probability = _other_honest_survivors(clients, colluder_count(clients, colluding), dropout)
    no_edge = 1 - edge
    alone = no_edge ** others.astype(float) - no_edge ** (clients - 1)
    return float(np.sum(probability * alone)) / selection_probability(alpha, clients)


def committee_revealed_fraction(
    clients: int, committees: int, dropout: float, colluding: float, min_survivors: int = 1
) -> float:
    """Return the share of honest survivors' values, of those that are opened, whose sum has no other honest user.

    Over the draw of the groups and the dropouts. Inside a committee masks tie all honest survivors together. Colluders
    stay to the end, and a committee with fewer than `min_survivors` survivors (in the smallest one; larger ones need
    the same part of theirs) is not opened. `full` is one committee.
    """
    sizes = _committee_sizes(clients, committees)
    colluders = colluder_count(clients, colluding)
    alone = opened = 0.0
    for size in sizes:
        least = scaled(min_survivors, size, min(sizes))
        honest_members = np.exp(log_hypergeometric(clients, clients - colluders, size))
        for honest, chance in enumerate(honest_members.tolist()):
            left = np.arange(max(1, least - (size - honest)), honest + 1)
            survive = chance * np.exp(log_binomial(np.full_like(left, honest), left, 1 - dropout))
            opened += float(np.sum(survive * left))
            alone += float(np.sum(survive[left == 1]))
    return alone / opened if opened else 0.0
