"""The trade-off that the paper's corollary describes: what sparsity costs and what it hides, at a fixed upload.

Every system may upload the same number of bytes per user. One that sends little per round gets many rounds for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.common.training import SECAGG, CohortRuns, System, Training

LOCATION_BITS = 0.47
"""Per coordinate, about: what `pairwise` adds to say where its values belong."""


@dataclass(frozen=True)
class Config:
    """What is trained, and how many bytes a user may upload."""

    training: Training
    budget_bytes: int
    """Upload per user."""
    marks_bytes: tuple[int, ...]
    """Smaller budgets that accuracy is also read at."""


def systems(dim: int, budget: int, alphas: tuple[float, ...], words: tuple[int, ...]) -> tuple[System, ...]:
    """Return ours and the published pattern with all α, and SecAgg."""
    ours = [System("sliced", alpha, bits) for alpha in alphas for bits in words]
    published = [System("pairwise", alpha, 32, normalisation="expected") for alpha in alphas]
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
    alphas: tuple[float, ...],
    words: tuple[int, ...] = (16, 32),
    samples: int | None = None,
) -> Config:
    cohort = CohortRuns(clients, systems=systems(dim, budget, alphas, words), ablations=(), samples=samples, lr=None)
    # Rounds are set by the budget, system by system.
    training = Training(dataset, (cohort,), target=None, rounds=1, model="mlp", hidden=hidden)
    return Config(training, budget, (budget // 4, budget // 2))


SCALES = {
    "quick": _config("digits", 30, 32, 2410, 9_600, (0.2, 0.5), (16,)),
    "default": _config("mnist", 100, 64, 50_890, 600_000, (0.05, 0.1, 0.2, 0.5), samples=12_000),
}
