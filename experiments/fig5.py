"""Figure 5: MNIST, dealt out evenly, until 97 %, with the paper's learning rate.

Differs from the paper: a small network (21,840 parameters) in place of McMahan's (1,663,370), which `mcmahan` trains.
"""

from __future__ import annotations

from experiments.common.pictures import Config, to_target
from experiments.common.training import Training, in_waves, paper_cohort

SCALES = {
    "quick": Config(Training("digits", (paper_cohort(25, lr=None),), target=0.8, rounds=8)),
    "default": Config(
        Training(
            "mnist",
            in_waves((paper_cohort(25, 5), paper_cohort(100, 5)), (paper_cohort(50, 5), paper_cohort(75, 5))),
            target=0.97,
            rounds=100,
            model="strided-cnn",
        )
    ),
}

EXPERIMENT = to_target("fig5", "MNIST, IID: upload until 97 %", 17.9, SCALES, cpu_minutes=300)
