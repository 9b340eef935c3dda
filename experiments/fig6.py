"""Figure 6: MNIST, sorted by label and dealt out in 300 shards, until 94 %, with the paper's learning rate.

Differs from the paper: a small network (21,840 parameters) in place of McMahan's (1,663,370).
"""

from __future__ import annotations

from experiments.common.pictures import Config, to_target
from experiments.common.training import CohortRuns, Training

SCALES = {
    "quick": Config(Training("digits", (CohortRuns(25, lr=None),), target=0.7, rounds=8, partition="shards")),
    "default": Config(
        Training(
            "mnist",
            tuple(CohortRuns(clients, 5) for clients in (25, 50, 75, 100)),
            target=0.94,
            rounds=100,
            partition="shards",
            model="strided-cnn",
        )
    ),
}

EXPERIMENT = to_target("fig6", "MNIST, non-IID: upload until 94 %", 12.0, SCALES, cpu_minutes=300)
