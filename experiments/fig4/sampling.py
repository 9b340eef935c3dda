"""Rounds of the real patterns, without the cryptography around them: who sends what, and who masks it with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.theory.formulas import pairwise_moments
from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns.pairwise import draw_positions, edge_probability
from sparsesecagg.privacy.anonymity import colluder_count
from sparsesecagg.protocol import Parameters

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Counts:
    """What one round showed about its honest survivors."""

    contributors: float
    """Honest survivors per coordinate, on average: the paper's T."""
    fewest: int
    thin: float
    """Share of coordinates with at most half of Theorem 2's T."""
    values: int
    """Coordinates (or slices) that honest survivors sent, added over users."""
    singled_out: int
    """Of these, those that no other honest survivor sent: what the paper counts."""
    opened: int
    """Of these, those in sums that clients open: not those of a committee that is too thin."""
    revealed: int
    """Of these, those whose masks no other honest survivor shares: what server and colluders read."""

    @staticmethod
    def of(senders: NDArray[np.int64], opened: int, revealed: int, promised: float) -> Counts:
        """Summarise the number of honest survivors at each coordinate."""
        return Counts(
            float(senders.mean()),
            int(senders.min()),
            float(np.mean(senders <= promised / 2)),
            int(senders.sum()),
            int(np.count_nonzero(senders == 1)),
            opened,
            revealed,
        )


def sample(
    params: Parameters, dropouts: Sequence[float], colluding: float, rounds: int, seed: Sequence[int]
) -> dict[str, list[dict[str, Any]]]:
    """Draw `rounds` patterns with adversaries and dropouts; return by dropout rate θ the counts of every round.

    A user that drops out at one θ does so at every larger one, so one pattern serves all of them.
    """
    found: dict[str, list[dict[str, Any]]] = {f"{dropout:g}": [] for dropout in dropouts}
    for number in range(rounds):
        rng = np.random.default_rng([*seed, number])
        honest = np.ones(params.clients, np.bool_)
        honest[rng.choice(params.clients, colluder_count(params.clients, colluding), replace=False)] = False
        luck = rng.random(params.clients)
        survivors = {dropout: honest & (luck >= dropout) for dropout in dropouts}
        count = _count_pairwise if params.pattern == "pairwise" else _count_committee
        for dropout, counts in count(params, survivors, ~honest, colluding, rng).items():
            found[f"{dropout:g}"].append(vars(counts))
    return found


def promised(params: Parameters, dropout: float, colluding: float) -> float:
    """Return the T that is expected with this N: p(1−θ) times the honest users."""
    honest = params.clients - colluder_count(params.clients, colluding)
    return params.selection_probability * (1 - dropout) * honest


def variance_of_a_round(params: Parameters, dropout: float, colluding: float) -> float:
    """Return the exact variance of one sampled round's T.

    The number of honest survivors is binomial; given these, the coordinates of `pairwise` are independent, and the
    slices of `committee` have each of them exactly as often as a user sends slices.
    """
    honest = params.clients - colluder_count(params.clients, colluding)
    p, alive = params.selection_probability, 1 - dropout
    variance = p**2 * honest * alive * dropout
    if params.pattern == "pairwise":
        excess = pairwise_moments(params.alpha, params.clients, 0.0).joint - p**2
        variance += honest * alive * (p * (1 - p) + (honest - 1) * alive * excess) / params.dim
    return variance


def _count_pairwise(
    params: Parameters, survivors: Mapping[float, Flags], _: Flags, colluding: float, rng: np.random.Generator
) -> dict[float, Counts]:
    one, other, coordinate = _edges(params, rng)
    sends = np.zeros((params.clients, params.dim), np.bool_)
    sends[one, coordinate] = sends[other, coordinate] = True
    found = {}
    for dropout, alive in survivors.items():
        senders = sends[alive].sum(axis=0)
        both = alive[one] & alive[other]
        hidden = np.zeros_like(sends)
        hidden[one[both], coordinate[both]] = hidden[other[both], coordinate[both]] = True
        revealed = int(np.count_nonzero(sends[alive] & ~hidden[alive]))
        found[dropout] = Counts.of(senders, int(senders.sum()), revealed, promised(params, dropout, colluding))
    return found


def _edges(params: Parameters, rng: np.random.Generator) -> tuple[NDArray[np.int64], ...]:
    """Draw all b_ij = 1 of a round: two users and the coordinate at which they share a mask."""
    probability = edge_probability(params.alpha_q32, params.degree)
    ones, others, coordinates = [], [], []
    for user in range(params.clients - 1):
        peers = range(user + 1, params.clients)
        drawn = draw_positions([PatternSeed(rng.bytes(32)) for _ in peers], params.dim, probability)
        for peer, positions in zip(peers, drawn, strict=True):
            ones.append(np.full(len(positions), user))
            others.append(np.full(len(positions), peer))
            coordinates.append(positions)
    return np.concatenate(ones), np.concatenate(others), np.concatenate(coordinates)


def _count_committee(
    params: Parameters, survivors: Mapping[float, Flags], colluders: Flags, colluding: float, rng: np.random.Generator
) -> dict[float, Counts]:
    """Count by slices, all of which are alike. Colluders stay to the end, and help a thin committee to be opened."""
    groups = params.groups(rng.bytes(32), params.structure)
    committees = [pod.users[places] for pod in groups.pods for places in pod.committees]
    found = {}
    for dropout, alive in survivors.items():
        senders = np.zeros(params.slices.count, np.int64)
        opened = revealed = 0
        for number, users in enumerate(committees):
            honest = int(np.count_nonzero(alive[users]))
            sent = params.slices.of(number, 0)
            senders[sent] += honest
            if honest + int(np.count_nonzero(colluders[users])) >= params.survivors_of(len(users)):
                opened += honest * len(sent)
                revealed += len(sent) if honest == 1 else 0
        found[dropout] = Counts.of(senders, opened, revealed, promised(params, dropout, colluding))
    return found
