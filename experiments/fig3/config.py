"""Figure 3: CIFAR-10, dealt out evenly, until 55 %.

Differs from the paper: larger learning rates than its 0.01, because two cores would need most of a day for the hundreds
of rounds it takes at N = 100. They are the same for all systems. `--paper` uses the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.common.training import Cohort, Training


@dataclass(frozen=True)
class Config:
    training: Training


SCALES = {
    # Digits instead of CIFAR-10, because they are embedded: the machinery is the same, the numbers mean little.
    "quick": Config(Training("digits", (Cohort.usual(25),), target=0.85, rounds=12)),
    "default": Config(
        Training(
            "cifar10",
            (
                Cohort.usual(25, lr=0.02, seeds=3),
                Cohort.usual(50, lr=0.05),
                Cohort.usual(75, lr=0.05),
                Cohort.usual(100, lr=0.05, seeds=3),
            ),
            target=0.55,
            rounds=40,
        )
    ),
    "paper": Config(
        Training("cifar10", tuple(Cohort.usual(clients) for clients in (25, 50, 75, 100)), target=0.55, rounds=400)
    ),
}
