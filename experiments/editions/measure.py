"""Train the settings of the comparison with whichever edition is on the path; print one JSON object per run.

The first edition lies at commit 7335955. This file imports only what both editions have, so the same settings are
measured by the same code: `PYTHONPATH=<first edition>/src python experiments/editions/measure.py first`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import FederatedRun, Task

SEEDS = (0, 1, 2)
LAST = 5
"""Accuracy is the mean of so many last rounds: on shards it moves by a point or two from round to round."""
STRETCHES = 16

SYSTEMS: dict[str, tuple[dict[str, Any], int]] = {
    "committee": ({"aggregator": "committee"}, 1),
    "secagg": ({"aggregator": "secagg"}, 1),
    "committee, steps": ({"aggregator": "committee", "downlink": "steps", "downlink_bits": 4}, 1),
    f"committee, {STRETCHES} stretches": ({"aggregator": "committee"}, STRETCHES),
}
"""By name: options, and of how many stretches of the model a slice is made. The first edition has the first two."""

SETTINGS: dict[str, dict[str, Any]] = {
    "digits, iid": {"dataset": "digits", "clients": 50, "rounds": 40, "alpha": 0.2},
    "digits, shards": {"dataset": "digits", "clients": 50, "rounds": 40, "alpha": 0.2, "partition": "shards"},
    "mnist, iid": {
        "dataset": "mnist", "model": "mlp", "clients": 100, "rounds": 20, "alpha": 0.1, "samples": 10_000, "lr": 0.05,
    },
    "mnist, shards": {
        "dataset": "mnist", "model": "mlp", "clients": 100, "rounds": 30, "alpha": 0.1, "samples": 10_000, "lr": 0.05,
        "partition": "shards",
    },
}  # fmt: skip
DROPOUT = 0.3


def main(edition: str, settings: list[str]) -> None:
    """Run what was asked for, everything by default."""
    for name in settings or SETTINGS:
        for seed in SEEDS:
            task = None
            for system, (options, stretches) in SYSTEMS.items():
                first = edition == "first"
                if (first and system not in ("committee", "secagg")) or (stretches > 1 and "shards" not in name):
                    continue
                down = {} if first else {"downlink": "model"}
                config = TrainingConfig.create(**SETTINGS[name], dropout=DROPOUT, seed=seed, **(down | options))
                task = task or Task.prepare(config)
                found = {"edition": edition, "setting": name, "system": system, **train(config, task, stretches)}
                print(json.dumps(found), flush=True)


def train(config: TrainingConfig, task: Task, stretches: int) -> dict[str, Any]:
    """Train one run to its end in one process."""
    with tempfile.TemporaryDirectory() as folder:
        run = FederatedRun.create(config, task, Path(folder) / "run")
        if stretches > 1:
            from experiments.editions.stretches import Rearranged

            run._aggregator = Rearranged(run._aggregator, stretches)  # type: ignore[assignment,arg-type]
        with task.pool(config, 1) as pool:
            lines = [metrics.to_json() for metrics in run.rounds(pool)]
    return {
        "seed": config.seed,
        "accuracy": 100 * fmean(line["accuracy"] for line in lines[-LAST:]),
        "best": 100 * max(line["accuracy"] for line in lines),
        "rounds": len(lines),
        "failed": sum(line["status"] == "failed" for line in lines),
        "coordinates_updated": fmean(
            line.get("coordinates_updated") or float(line["status"] == "ok") for line in lines
        ),
        "upload_bytes": run.summary().upload_bytes_per_client_round,
        "sent_bytes": fmean(line["sent_bytes"]["total"] for line in lines),
        "downlink_bytes": fmean(line.get("downlink_bytes", 4.0 * task.model.dim) for line in lines),
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
