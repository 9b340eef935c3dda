"""Figure 5 with McMahan's network (1,663,370 parameters), the paper's own: N = 25 and 100, rates 0.01 and 0.05.

One seed, because a round's training takes minutes.
"""

from __future__ import annotations

from experiments.common.pictures import Config, to_target
from experiments.common.training import PAIRWISE, SECAGG, SLICED, SLICED_SHORT, CohortRuns, Training

ALL = (SECAGG, PAIRWISE, SLICED, SLICED_SHORT)

SCALES = {
    "quick": Config(Training("digits", (CohortRuns(25, lr=None, ablations=()),), target=0.8, rounds=8)),
    "default": Config(
        Training(
            "mnist",
            (
                CohortRuns(25, systems=ALL, ablations=()),
                CohortRuns(100, systems=ALL, ablations=(), lr=0.05),
                CohortRuns(100, systems=ALL, ablations=()),
            ),
            target=0.97,
            rounds=60,
            model="mnist-cnn",
        )
    ),
}

EXPERIMENT = to_target("mcmahan", "MNIST, IID, McMahan's network: upload until 97 %", 17.9, SCALES, cpu_minutes=600)
