"""Rounds of their own, without training: who takes part in them, and their randomness."""

from __future__ import annotations

from sparsesecagg.engines.in_process.run import EntropyOf
from sparsesecagg.engines.in_process.simulation import seeded_entropy
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Policy

ANY_RUN = Policy(min_anonymity=1, min_survivors=1, patterns=frozenset(PATTERNS))
"""Simulated users take part in whatever is measured: how little they put up with is not what is tested."""


def entropy_of_round(seed: int, number: int) -> EntropyOf:
    """Return every user's source of randomness in a run that lasts one round."""
    return lambda user: seeded_entropy(seed, number, user)
