"""Figure 5 with McMahan's network (1,663,370 parameters), the paper's own: N = 25 and 100, rates 0.01 and 0.05.

One seed, because a round's training takes minutes.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.common.pictures import Config, to_target
from experiments.common.training import Training, paper_cohort

SCALES = {
    "quick": Config(Training("digits", (paper_cohort(25, lr=None),), target=0.8, rounds=8)),
    "default": Config(
        Training(
            "mnist",
            tuple(
                replace(cohort, ablations=())
                for cohort in (paper_cohort(25), paper_cohort(100, lr=0.05), paper_cohort(100))
            ),
            target=0.97,
            rounds=60,
            model="mnist-cnn",
        )
    ),
}

EXPERIMENT = to_target("mcmahan", "MNIST, IID, McMahan's network: upload until 97 %", 17.9, SCALES, cpu_minutes=200)
