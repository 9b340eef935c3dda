"""Rounds of their own, without training: who takes part in them, and their randomness."""

from __future__ import annotations

import numpy as np

from sparsesecagg.simulate.run import EntropyOf
from sparsesecagg.simulate.simulation import seeded_entropy
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Policy, Stage

ANY_RUN = Policy(min_anonymity=1, min_survivors=1, patterns=frozenset(PATTERNS))
"""Simulated users take part in whatever is measured: how little they put up with is not what is tested."""


def entropy_of_round(seed: int, number: int) -> EntropyOf:
    """Return every user's source of randomness in a run that lasts one round."""
    return lambda user: seeded_entropy(seed, number, user)


def exactly_dropped(clients: int, dropout: float, rng: np.random.Generator) -> dict[int, Stage]:
    """Choose ⌊θN⌋ users that drop out at UPLOAD: the costs of a round with a given number of dropouts.

    Elsewhere each user drops out with probability θ, and their number varies.
    """
    gone = rng.choice(clients, int(dropout * clients), replace=False)
    return dict.fromkeys(gone.tolist(), Stage.UPLOAD)
