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

from sparsesecagg.learning.config import TrainingConfig
from sparsesecagg.learning.federated import FederatedRun, Task

SEEDS = (0, 1, 2)
SYSTEMS = ("committee", "secagg")
LAST = 5
"""Accuracy is the mean of so many last rounds: on shards it moves by a point or two from round to round."""

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
            for system in SYSTEMS:
                config = TrainingConfig.create(**SETTINGS[name], dropout=DROPOUT, aggregator=system, seed=seed)
                task = task or Task.prepare(config)
                print(json.dumps({"edition": edition, "setting": name, **train(config, task)}), flush=True)  # noqa: T201


def train(config: TrainingConfig, task: Task) -> dict[str, Any]:
    """Train one run to its end in one process."""
    with tempfile.TemporaryDirectory() as folder:
        run = FederatedRun.create(config, task, Path(folder) / "run")
        with task.pool(config, 1) as pool:
            lines = [metrics.to_json() for metrics in run.rounds(pool)]
    return {
        "system": config.aggregator,
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
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
