"""Rounds of the published pattern without the cryptography around them: who sends what, and who masks it with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.theory.formulas import pairwise_moments
from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.lab.audit.theory import selection_probability
from sparsesecagg.patterns.gaps import bernoulli_positions
from sparsesecagg.privacy.anonymity import colluder_count

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Drawing:
    """The published pattern: N users, d coordinates, α."""

    clients: int
    dim: int
    alpha: float

    @property
    def probability(self) -> float:
        """p, with which a user sends a coordinate."""
        return selection_probability(self.alpha, self.clients)

    @property
    def edge_probability(self) -> int:
        """P[b_ij(ℓ) = 1] = α/(N−1) in units of 2^−64, as the protocol computes it."""
        return (round(self.alpha * 2**32) << 32) // (self.clients - 1)

    def promised(self, dropout: float, colluding: float) -> float:
        """Return the T that is expected with this N: p(1−θ) times the honest users."""
        return self.probability * (1 - dropout) * (self.clients - colluder_count(self.clients, colluding))


@dataclass(frozen=True)
class Counts:
    """What one round showed about its honest survivors."""

    contributors: float
    """Honest survivors per coordinate, on average: the paper's T."""
    below: float
    """Share of coordinates with fewer than the T that is expected."""
    thin: float
    """Share of coordinates with at most half of it."""
    values: int
    """Coordinates that honest survivors sent, added over users."""
    singled_out: int
    """Of these, those that no other honest survivor sent: what the paper counts."""
    revealed: int
    """Of these, those whose masks no other honest survivor shares: what server and colluders read."""


def sample(
    drawing: Drawing, dropouts: Sequence[float], colluding: float, rounds: int, seed: Sequence[int]
) -> dict[str, list[dict[str, Any]]]:
    """Draw `rounds` patterns with adversaries and dropouts; return by dropout rate θ the counts of every round.

    A user that drops out at one θ does so at every larger one, so one pattern serves all of them.
    """
    found: dict[str, list[dict[str, Any]]] = {f"{dropout:g}": [] for dropout in dropouts}
    for number in range(rounds):
        rng = np.random.default_rng([*seed, number])
        honest = np.ones(drawing.clients, np.bool_)
        honest[rng.choice(drawing.clients, colluder_count(drawing.clients, colluding), replace=False)] = False
        luck = rng.random(drawing.clients)
        survivors = {dropout: honest & (luck >= dropout) for dropout in dropouts}
        for dropout, counts in _count(drawing, survivors, colluding, rng).items():
            found[f"{dropout:g}"].append(vars(counts))
    return found


def variance_of_a_round(drawing: Drawing, dropout: float, colluding: float) -> float:
    """Return the exact variance of one sampled round's T.

    The number of honest survivors is binomial; given these, the coordinates are independent.
    """
    honest = drawing.clients - colluder_count(drawing.clients, colluding)
    p, alive = drawing.probability, 1 - dropout
    excess = pairwise_moments(drawing.alpha, drawing.clients, 0.0).joint - p**2
    coordinates = honest * alive * (p * (1 - p) + (honest - 1) * alive * excess) / drawing.dim
    return p**2 * honest * alive * dropout + coordinates


def _count(
    drawing: Drawing, survivors: Mapping[float, Flags], colluding: float, rng: np.random.Generator
) -> dict[float, Counts]:
    one, other, coordinate = _edges(drawing, rng)
    sends = np.zeros((drawing.clients, drawing.dim), np.bool_)
    sends[one, coordinate] = sends[other, coordinate] = True
    found = {}
    for dropout, alive in survivors.items():
        senders = sends[alive].sum(axis=0)
        both = alive[one] & alive[other]
        hidden = np.zeros_like(sends)
        hidden[one[both], coordinate[both]] = hidden[other[both], coordinate[both]] = True
        promised = drawing.promised(dropout, colluding)
        found[dropout] = Counts(
            contributors=float(senders.mean()),
            below=float(np.mean(senders < promised)),
            thin=float(np.mean(senders <= promised / 2)),
            values=int(senders.sum()),
            singled_out=int(np.count_nonzero(senders == 1)),
            revealed=int(np.count_nonzero(sends[alive] & ~hidden[alive])),
        )
    return found


def _edges(drawing: Drawing, rng: np.random.Generator) -> tuple[NDArray[np.int64], ...]:
    """Draw all b_ij = 1 of a round: two users and the coordinate at which they share a mask."""
    ones, others, coordinates = [], [], []
    for user in range(drawing.clients - 1):
        peers = range(user + 1, drawing.clients)
        seeds = [PatternSeed(rng.bytes(32)) for _ in peers]
        drawn = bernoulli_positions(seeds, drawing.dim, drawing.edge_probability)
        for peer, positions in zip(peers, drawn, strict=True):
            ones.append(np.full(len(positions), user))
            others.append(np.full(len(positions), peer))
            coordinates.append(positions)
    return np.concatenate(ones), np.concatenate(others), np.concatenate(coordinates)
