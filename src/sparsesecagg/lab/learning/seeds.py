"""Everything random in a simulated run, derived from one seed.

Each draw is named by its purpose and by numbers (round, user), never by how many draws came before it. So a resumed
run, or one with another number of worker processes, draws exactly what the undisturbed run would have drawn.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a random stream is for. The numbers are part of what makes old runs repeatable: never reuse one."""

    SPLIT = 1
    PARTITION = 2
    INITIAL_MODEL = 3
    LOCAL_TRAINING = 4
    DROPOUT = 5
    SPARSITY = 6
    SAMPLE = 7
    MALICIOUS = 8


def generator(seed: int, purpose: Purpose, *numbers: int) -> np.random.Generator:
    """Return a fresh generator of one named stream."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, *numbers)))


def integer_seed(seed: int, purpose: Purpose, *numbers: int) -> int:
    """Return a 63-bit integer of one named stream, for libraries that want a plain number."""
    return int(_sequence(seed, purpose, *numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(seed: int, purpose: Purpose, *numbers: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy=seed, spawn_key=(int(purpose), *numbers))
