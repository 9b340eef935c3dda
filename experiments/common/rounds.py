"""Rounds of their own, without training: who takes part in them, and their randomness."""

from __future__ import annotations

import numpy as np

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Parameters, Policy, RoundOptions, Stage
from sparsesecagg.simulate import Cohort
from sparsesecagg.simulate.simulation import seeded_entropy

ANY_RUN = Policy(min_anonymity=0, server="semi-honest", colluding=0.0, patterns=frozenset(PATTERNS))
"""Simulated users take part in whatever is measured: how little they put up with is not what is tested."""


def majority(clients: int) -> int:
    """Return the paper's threshold, the same for all systems: more than half of the users."""
    return clients // 2 + 1


def cohort(seed: int, number: int) -> Cohort:
    """Return the users of a run that lasts one round, with their randomness."""
    return Cohort(ANY_RUN, lambda user: seeded_entropy(seed, number, user))


def parameters(clients: int, dim: int, options: RoundOptions, *names: int) -> Parameters:
    """Return the parameters of a run that `names` (seed, round, …) tell apart, so that it can be repeated."""
    session = digest("experiment", repr(names).encode())
    return Parameters.create(clients, dim, options, session=session)


def exactly_dropped(clients: int, dropout: float, rng: np.random.Generator) -> dict[int, Stage]:
    """Choose ⌊θN⌋ users that drop out at UPLOAD: the costs of a round with a given number of dropouts.

    Elsewhere each user drops out with probability θ, and their number varies.
    """
    gone = rng.choice(clients, int(dropout * clients), replace=False)
    return dict.fromkeys(gone.tolist(), Stage.UPLOAD)
