"""Figure 6: MNIST, sorted by label and dealt out in 300 shards, until 94 %, with the paper's learning rate.

Differs from the paper: a small network (21,840 parameters) in place of McMahan's (1,663,370).
"""

from __future__ import annotations

from experiments.common.pictures import Config, to_target
from experiments.common.training import Training, in_waves, paper_cohort

SCALES = {
    "quick": Config(Training("digits", (paper_cohort(25, lr=None),), target=0.7, rounds=8, partition="shards")),
    "default": Config(
        Training(
            "mnist",
            in_waves((paper_cohort(25, 5), paper_cohort(100, 5)), (paper_cohort(50, 5), paper_cohort(75, 5))),
            target=0.94,
            rounds=100,
            partition="shards",
            model="strided-cnn",
        )
    ),
}

EXPERIMENT = to_target("fig6", "MNIST, non-IID: upload until 94 %", 12.0, SCALES, cpu_minutes=300)
