"""Small simulated runs of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Parameters, Policy, RoundOptions
from sparsesecagg.simulate import Cohort
from sparsesecagg.simulate.simulation import EntropyByRound, make_identities, seeded_entropy

CLIENTS, DIM = 12, 61
LENIENT = Policy(min_anonymity=0, patterns=frozenset(PATTERNS))
KINDS: dict[str, dict[str, Any]] = {
    "one group": {"alpha": 0.3, "threshold": 8},
    "two groups": {"alpha": 0.25, "group_size": 6, "threshold": 4},
    "two groups, same slices": {"alpha": 0.25, "group_size": 6, "threshold": 4, "same_slices": True},
    "full": {"pattern": "full", "threshold": 8},
    "full with neighbours": {"pattern": "full", "neighbours": 8},
    "pairwise": {"pattern": "pairwise", "alpha": 0.3},
    "weights in short words": {"alpha": 0.5, "threshold": 8, "max_weight": 100, "modulus_bits": 12},
    "a roster": {"alpha": 0.3, "group_size": 6, "threshold": 4, "roster": True},
}


def start(kind: str, seed: int = 3) -> tuple[Parameters, Cohort, EntropyByRound]:
    """Return a run's parameters, its users, and their randomness."""
    options, entropy = dict(KINDS[kind]), EntropyByRound(seed)
    identities = None
    if options.pop("roster", False):
        identities = make_identities(CLIENTS, "test", seeded_entropy(1), group_size=options["group_size"])
    cohort = Cohort(LENIENT, entropy.of, identities)
    params = Parameters.create(CLIENTS, DIM, RoundOptions(**options), session=bytes(32), roster=cohort.roster)
    return params, cohort, entropy


def updates(clients: int = CLIENTS, dim: int = DIM, seed: int = 0) -> list[NDArray[np.float64]]:
    """Return updates within the clip of 1."""
    return list(np.random.default_rng(seed).uniform(-1, 1, (clients, dim)))
