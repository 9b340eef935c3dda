"""Figure 5: MNIST, dealt out evenly, until 97 %, with the paper's learning rate.

Differs from the paper: a small network (21,840 parameters) in place of McMahan's (1,663,370), which `mcmahan` trains.
"""

from __future__ import annotations

from experiments.common.pictures import Config, to_target
from experiments.common.training import CohortRuns, Training

SCALES = {
    "quick": Config(Training("digits", (CohortRuns(25, lr=None),), target=0.8, rounds=8)),
    "default": Config(
        Training(
            "mnist",
            tuple(CohortRuns(clients, 5) for clients in (25, 50, 75, 100)),
            target=0.97,
            rounds=100,
            model="strided-cnn",
        )
    ),
}

EXPERIMENT = to_target("fig5", "MNIST, IID: upload until 97 %", 17.9, SCALES, cpu_minutes=300)
