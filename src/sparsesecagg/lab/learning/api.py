"""Federated training in one call, for scripts and notebooks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.data import Dataset
from sparsesecagg.lab.learning.federated import FederatedRun, RunSummary, Task
from sparsesecagg.lab.learning.metrics import RoundLine
from sparsesecagg.lab.learning.models import Model, TorchModel
from sparsesecagg.lab.learning.workers import check_workers

if TYPE_CHECKING:
    import torch


def train_federated(
    dataset: str | Dataset = "digits",
    model: str | Model | torch.nn.Module | Callable[[], torch.nn.Module] | None = None,
    *,
    out: Path | str | None = None,
    resume: Path | str | None = None,
    data_dir: Path | str | None = None,
    workers: int | None = None,
    on_round: Callable[[RoundLine], None] | None = None,
    **options: Any,
) -> RunSummary:
    """Train `model` on `dataset` and return what came of it.

    Both are names or your own. A torch module begins with its present weights; a function that makes one (or its
    class) is called with torch seeded, so that `seed` decides the first weights too. `out` is the run folder, a new one
    in `runs/` by default; `resume` continues one. `options` have the names of the command line: clients, rounds,
    aggregator, alpha, …
    """
    check_workers(workers)
    if not isinstance(dataset, str | Dataset):
        raise InvalidInput("dataset", f"must be a name or a Dataset, got {type(dataset).__name__}")
    own_data = dataset if isinstance(dataset, Dataset) else None
    own_model = None if isinstance(model, str | None) else as_model(model)
    folder = None if data_dir is None else Path(data_dir)
    if resume is not None:
        if out is not None:
            raise InvalidInput("out", "must not be given with resume: a run resumes in its own folder")
        run = FederatedRun.resume(Path(resume), options, dataset=own_data, model=own_model, data_dir=folder)
    else:
        named = {"model": model} if isinstance(model, str) else {}
        name = dataset.name if isinstance(dataset, Dataset) else dataset
        config = TrainingConfig.create(name, **named, **options)
        task = Task.prepare(config, dataset=own_data, model=own_model, data_dir=folder)
        run = FederatedRun.create(config, task, Path(out) if out is not None else new_run_folder(config))
    with run.task.pool(run.config, workers) as pool:
        for line in run.rounds(pool):
            if on_round is not None:
                on_round(line)
    return run.summary()


def as_model(model: Any) -> Model:
    """Return a model of one's own: as it is, or wrapped if it is a torch module or a function that makes one."""
    if isinstance(model, Model):
        return model
    if callable(model):  # Modules are callable too.
        return TorchModel(model)
    raise InvalidInput("model", f"must be a name, a Model, a torch.nn.Module or a function, got {type(model).__name__}")


def new_run_folder(config: TrainingConfig, compared: bool = False) -> Path:
    """Return the name of a new folder in `runs/`."""
    what = "comparison" if compared else config.aggregator
    base = f"{config.dataset.replace(' ', '-')}-{what}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = Path("runs") / base, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{base}-{number}"
    return path
