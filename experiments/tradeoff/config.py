"""The trade-off that the paper's corollary describes in words: what anonymity costs at a fixed upload.

Every system may upload the same number of bytes per user. One that sends little per round gets many rounds for them,
one that hides each value among many users gets few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.common.training import SECAGG, CohortRuns, System, Training

LOCATION_BITS = 0.47
"""Per coordinate, about: what `pairwise` adds to say where its values belong."""


@dataclass(frozen=True)
class Config:
    training: Training
    budget_bytes: int
    """Upload per user."""
    marks_bytes: tuple[int, ...]
    """Smaller budgets that accuracy is also read at."""
    failure_log2: float
    """The guaranteed anonymity may be missed with this chance per round."""


def systems(clients: int, dim: int, budget: int, sizes: tuple[int, ...], words: tuple[int, ...]) -> tuple[System, ...]:
    """Return committees of all sizes and words, the published pattern at the same α, and SecAgg."""
    ours = [System("committee", size / clients, bits, committee_size=size) for size in sizes for bits in words]
    published = [System("pairwise", size / clients, 32, normalisation="expected") for size in sizes if size < clients]
    found = []
    for system in (*ours, *published, SECAGG):
        location = LOCATION_BITS if system.aggregator == "pairwise" else 0
        per_round = dim * (system.alpha * system.modulus_bits + location) / 8
        if rounds := int(budget / per_round):
            found.append(replace(system, rounds=rounds))
    return tuple(found)


def _config(
    dataset: str,
    clients: int,
    hidden: int,
    dim: int,
    budget: int,
    sizes: tuple[int, ...],
    words: tuple[int, ...] = (8, 12, 16),
    samples: int | None = None,
    failure_log2: float = -20.0,
) -> Config:
    cohort = CohortRuns(clients, systems(clients, dim, budget, sizes, words), samples)
    # Rounds are set by the budget, system by system.
    training = Training(dataset, (cohort,), target=None, rounds=1, model="mlp", hidden=hidden)
    return Config(training, budget, (budget // 4, budget // 2), failure_log2)


SCALES = {
    "quick": _config("digits", 30, 32, 2410, 9_600, (10, 30), (8, 16), failure_log2=-7),
    "default": _config("mnist", 100, 64, 50_890, 300_000, (10, 20, 50, 100), (8, 16), samples=12_000),
    "paper": _config("mnist", 100, 64, 50_890, 2_000_000, (5, 10, 20, 33, 50, 100)),
}
