"""Figure 3: CIFAR-10, dealt out evenly, until 55 %.

Differs from the paper: local data shrinks with N, and with its learning rate of 0.01 rounds become many, so the rate is
searched for, on a part of the training set, and is the same for all systems. `--paper` uses the paper's.
"""

from __future__ import annotations

from experiments.common.search import Search
from experiments.common.to_target import Config, to_target
from experiments.common.training import CohortRuns, Training

SCALES = {
    # Digits instead of CIFAR-10, because they are embedded: the machinery is the same, the numbers mean little.
    "quick": Config(
        Training(
            "digits",
            (CohortRuns.usual(25),),
            target=0.85,
            rounds=12,
            search=Search(above=0, cohorts=(25,), rates=(0.05, 0.1), rounds=1),
        )
    ),
    "default": Config(
        Training(
            "cifar10",
            (CohortRuns.usual(25, seeds=3), CohortRuns.usual(100, seeds=3), CohortRuns.usual(50), CohortRuns.usual(75)),
            target=0.55,
            rounds=40,
            search=Search(above=0, cohorts=(25, 100)),
        )
    ),
    "paper": Config(
        Training("cifar10", tuple(CohortRuns.usual(clients) for clients in (25, 50, 75, 100)), target=0.55, rounds=400)
    ),
}

EXPERIMENT = to_target(
    "fig3", "CIFAR-10, IID: upload and time until 55 %", {"upload": "7.8×", "clock": "1.13×"}, SCALES
)
