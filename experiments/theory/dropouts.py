"""The corollary on dropouts: up to N − t users may drop out, and not one more."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.common.rounds import cohort, majority, parameters
from experiments.theory.checks import check
from experiments.theory.config import Dropouts
from sparsesecagg.errors import ThresholdNotMet
from sparsesecagg.protocol import Parameters, RoundOptions, Stage
from sparsesecagg.simulate import run_round

PATTERNS = ("full", "pairwise")
STAGES = (Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK)


def measure(config: Dropouts, clients: int, seed: int) -> dict[str, Any]:
    """Run rounds with the most dropouts that are allowed, and with one more, at every stage with every pattern."""
    exact = refused = rounds = 0
    for number, (pattern, stage) in enumerate((pattern, stage) for pattern in PATTERNS for stage in STAGES):
        alpha = 1.0 if pattern == "full" else config.alpha
        options = RoundOptions(pattern=pattern, alpha=alpha, threshold=majority(clients))
        params = parameters(clients, config.dim, options, seed, number)
        rng = np.random.default_rng([seed, clients, number])
        silent = rng.permutation(clients)[: clients - params.threshold + 1].tolist()
        updates = rng.normal(0, 0.1, (clients, config.dim))

        def attempt(
            gone: list[int],
            params: Parameters = params,
            stage: Stage = stage,
            updates: Any = updates,
            number: int = number,
        ) -> bool:
            return run_round(
                params,
                list(updates),
                cohort(seed, number),
                drops=dict.fromkeys(gone, stage),
            ).exact

        rounds += 1
        exact += attempt(silent[:-1])
        try:
            attempt(silent)
        except ThresholdNotMet:
            refused += 1
    most = clients - params.threshold
    return {"clients": clients, "most": most, "rounds": rounds, "exact": exact, "refused": refused}


def checks(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rounds with N − t dropouts are exact; all with one more end in `ThresholdNotMet`."""
    return [
        check(
            "Corollary (dropouts)",
            f"N = {point['clients']}, {point['most']} dropouts (θ = {point['most'] / point['clients']:.3f}): exact "
            f"rounds, and rounds refused with one dropout more",
            [point["exact"], point["refused"]],
            expected=[point["rounds"], point["rounds"]],
            holds=point["exact"] == point["refused"] == point["rounds"],
            error_rate=0,
            note=f"{', '.join(PATTERNS)}; silent from {', '.join(stage.name for stage in STAGES)} on",
        )
        for point in points
    ]
