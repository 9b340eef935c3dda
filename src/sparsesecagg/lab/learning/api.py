"""Federated training in one call, for scripts and notebooks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.data import Dataset
from sparsesecagg.lab.learning.federated import FederatedRun, RunSummary, Task
from sparsesecagg.lab.learning.metrics import RoundLine
from sparsesecagg.lab.learning.models import Model
from sparsesecagg.lab.learning.workers import check_workers


def train_federated(
    dataset: str | Dataset = "digits",
    model: str | Model | None = None,
    *,
    out: Path | str | None = None,
    resume: Path | str | None = None,
    data_dir: Path | None = None,
    workers: int | None = None,
    on_round: Callable[[RoundLine], None] | None = None,
    **options: Any,
) -> RunSummary:
    """Train `model` on `dataset` and return what came of it.

    Both are names or your own (`Dataset.from_arrays`, `TorchModel`). `out` is the run folder, a new one in `runs/` by
    default; `resume` continues one. `options` are those of `TrainingConfig`: clients, rounds, aggregator, alpha, …
    """
    check_workers(workers)
    own_data = dataset if isinstance(dataset, Dataset) else None
    own_model = model if isinstance(model, Model) else None
    if resume is not None:
        run = FederatedRun.resume(Path(resume), options, dataset=own_data, model=own_model, data_dir=data_dir)
    else:
        named = {"model": model} if isinstance(model, str) else {}
        name = dataset.name if isinstance(dataset, Dataset) else dataset
        config = TrainingConfig.create(name, **named, **options)
        task = Task.prepare(config, dataset=own_data, model=own_model, data_dir=data_dir)
        run = FederatedRun.create(config, task, Path(out) if out is not None else new_run_folder(config))
    with run.task.pool(run.config, workers) as pool:
        for line in run.rounds(pool):
            if on_round is not None:
                on_round(line)
    return run.summary()


def new_run_folder(config: TrainingConfig, compared: bool = False) -> Path:
    """Return the name of a new folder in `runs/`."""
    what = "comparison" if compared else config.aggregator
    base = f"{config.dataset.replace(' ', '-')}-{what}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = Path("runs") / base, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{base}-{number}"
    return path
