"""Measure what sums of many rounds tell about single users, and write results/many_rounds.json.

    .venv/bin/python -m experiments.many_rounds.run

Takes a minute or two. Publish what it measured with `python -m experiments.many_rounds.publish`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.results import commit
from experiments.many_rounds.model import WAYS, ManyRounds, rounds_to_solve, watch
from sparsesecagg import __version__

RESULTS = Path(__file__).parents[2] / "results" / "many_rounds.json"
ROUNDS = (10, 20, 50, 100, 200, 500, 1000)
DROPOUTS = (0.0, 0.1, 0.3)
COHORT = ManyRounds(clients=100, groups=10, alpha=0.1, persistent=0.5)
ONE_GROUP = ManyRounds(clients=100, groups=1, alpha=0.1, persistent=0.5)
"""What 100 users are by default."""
COORDINATES, DRAWS, SEED = 40, 5, 0
GROUPS = ((10, 0.1), (34, 0.05), (34, 0.1), (34, 0.3), (100, 0.1))
"""Members and dropout rate of the groups whose weights are solved for."""
REPEATS = 200


def main() -> None:
    """Measure and save."""
    result = {
        "command": "python -m experiments.many_rounds.run",
        "version": __version__,
        "commit": commit(),
        "seed": SEED,
        "configuration": {
            "clients": COHORT.clients,
            "groups": COHORT.groups,
            "alpha": COHORT.alpha,
            "persistent": COHORT.persistent,
            "coordinates": COORDINATES,
            "draws": DRAWS,
            "repeats": REPEATS,
        },
        "numbers": {"rounds": list(ROUNDS), "correlation": correlations(), "weights": weights()},
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def correlations() -> list[dict[str, Any]]:
    """Return the correlation after each number of rounds, for all ways to add up and all dropout rates."""
    found = []
    for dropout in DROPOUTS:
        for name, cohort, way in (("one", ONE_GROUP, "kept"), *((way, COHORT, way) for way in WAYS)):
            values = watch(
                replace(cohort, dropout=dropout), way, ROUNDS, coordinates=COORDINATES, draws=DRAWS, seed=SEED
            )
            found.append({"way": name, "dropout": dropout, "correlation": [round(value, 4) for value in values]})
    return found


def weights() -> list[dict[str, Any]]:
    """Return after how many rounds a group's weights are solved for."""
    found = []
    for members, dropout in GROUPS:
        needed = [
            rounds_to_solve(members, dropout, np.random.default_rng([SEED, members, round(1000 * dropout), repeat]))
            for repeat in range(REPEATS)
        ]
        found.append(
            {
                "members": members,
                "dropout": dropout,
                "rounds": {"median": float(np.median(needed)), "min": min(needed), "max": max(needed)},
            }
        )
    return found


if __name__ == "__main__":
    main()
