"""Federated training in one call, for scripts and notebooks; and several runs in one folder.

For several runs any option may be a list, and there is one run for each combination. An aggregator in a list may carry
its own fraction of the model, the bits of its words, or both: `aggregator[:alpha][:bits]`. A number up to 1 is α, one
from 4 on bits, so neither can be taken for the other.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.field import WORD_BITS
from sparsesecagg.files import write_atomically
from sparsesecagg.lab.learning.aggregation import RoundLine
from sparsesecagg.lab.learning.aggregators import AGGREGATORS, SLICED, SPARSE, make_aggregator
from sparsesecagg.lab.learning.config import OTHER_WORDS, TrainingConfig
from sparsesecagg.lab.learning.data import Dataset, load_dataset
from sparsesecagg.lab.learning.federated import FederatedRun, RunSummary, Task, resumed_config
from sparsesecagg.lab.learning.models import Model
from sparsesecagg.lab.learning.run_folder import RunFolder, check_free, readable
from sparsesecagg.lab.learning.torch_models import TorchModel
from sparsesecagg.lab.learning.workers import check_workers

if TYPE_CHECKING:
    import torch

LIST = "comparison.json"


class _Listed(msgspec.Struct):
    runs: Annotated[list[str], msgspec.Meta(min_length=1)]


_MOST_RUNS = 1000
_TASK = ("dataset", "model", "hidden", "samples", "partition", "shards", "concentration", "clients", "seed")
"""The options that decide what is trained on what: runs that agree in them share data, partition and first model."""


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
    require("dataset", isinstance(dataset, str | Dataset), f"must be a name or a Dataset, got {type(dataset).__name__}")
    own_data = dataset if isinstance(dataset, Dataset) else None
    own_model = None
    if model is not None and not isinstance(model, str):
        kinds = f"must be a name, a Model, a torch.nn.Module or a function, got {type(model).__name__}"
        require("model", callable(model) or isinstance(model, Model), kinds)  # Modules are callable.
        own_model = model if isinstance(model, Model) else TorchModel(model)
    folder = None if data_dir is None else Path(data_dir)
    if resume is not None:
        require("out", out is None, "must not be given with resume: a run resumes in its own folder")
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


def new_run_folder(config: TrainingConfig, compared: bool = False) -> Path:
    """Return the name of a new folder in `runs/`."""
    what = "comparison" if compared else config.aggregator
    base = f"{config.dataset.replace(' ', '-')}-{what}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = Path("runs") / base, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{base}-{number}"
    return path


# Several runs


def plan_runs(options: Mapping[str, Any]) -> dict[str, TrainingConfig]:
    """Return the runs that the options describe, by name (none if it is one run); runs of one seed stand together."""
    lists = {name: value for name, value in options.items() if isinstance(value, list | tuple)}
    for name, values in lists.items():
        if not values or len({str(value) for value in values}) < len(values):
            given = ",".join(map(str, values))
            raise InvalidInput("compare" if name == "aggregator" else name, f"must be different values, got {given!r}")
    if (number := math.prod(map(len, lists.values()))) > _MOST_RUNS:
        raise InvalidInput("config", f"must describe at most {_MOST_RUNS} runs, got lists for {number}")
    order = sorted(lists, key=lambda name: (name != "seed", name != "aggregator"))
    if not lists:
        return {"": TrainingConfig.create(**options)}
    configs: dict[str, TrainingConfig] = {}
    for values in itertools.product(*(lists[name] for name in order)):
        chosen = dict(zip(order, values, strict=True))
        changes = _entry(chosen["aggregator"]) if "aggregator" in chosen else {}
        config = TrainingConfig.create(**{**options, **chosen, **changes})
        first = str(chosen.pop("aggregator", config.aggregator)).replace(":", "-")
        swept = [f"{name}-{value}" for name, value in sorted(chosen.items(), key=lambda each: each[0] == "seed")]
        configs[re.sub(r"[^\w.+-]", "_", "-".join([first, *swept]))] = config
    return configs


def create_runs(
    configs: Mapping[str, TrainingConfig], out: Path, *, data_dir: Path | None = None, dataset: Dataset | None = None
) -> list[FederatedRun]:
    """Check all runs, then make their folders: `out` for one without a name, else one for each inside."""
    loaded: dict[str, Dataset] = {}
    tasks: dict[tuple[Any, ...], Task] = {}
    for config in configs.values():
        if (key := _task_of(config)) not in tasks:
            data = dataset or loaded.get(config.dataset) or load_dataset(config.dataset, data_dir)
            loaded[config.dataset] = data
            tasks[key] = Task.prepare(config, dataset=data, data_dir=data_dir)
        make_aggregator(config, tasks[key].model, tasks[key].initial)
    check_free(out)
    runs = [FederatedRun.create(config, tasks[_task_of(config)], out / name) for name, config in configs.items()]
    if "" not in configs:
        write_atomically(out / LIST, json.dumps({"runs": list(configs)}) + "\n")
    return runs


def resume_runs(run_dir: Path, options: Mapping[str, Any], *, data_dir: Path | None = None) -> list[FederatedRun]:
    """Go on with the run of a folder, or with all runs in it; those that are finished stay as they are."""
    names = [""]
    if (run_dir / LIST).is_file():
        with readable(run_dir / LIST) as path:
            names = msgspec.json.decode(path.read_bytes(), type=_Listed).runs
    configs = [resumed_config(RunFolder.resume(run_dir / name), options) for name in names]  # Before one changes.
    tasks: dict[tuple[Any, ...], Task] = {}
    runs = []
    for name, config in zip(names, configs, strict=True):
        runs.append(FederatedRun.resume(run_dir / name, options, data_dir=data_dir, task=tasks.get(_task_of(config))))
        tasks[_task_of(config)] = runs[-1].task
    return runs


def _task_of(config: TrainingConfig) -> tuple[Any, ...]:
    return tuple(config.value(name) for name in _TASK)


def batches_of(runs: Sequence[FederatedRun]) -> Iterator[list[FederatedRun]]:
    """Yield runs that follow each other and train in the same way, so that one pool of processes serves them."""
    for _, batch in itertools.groupby(runs, lambda run: (id(run.task), run.config.how)):
        yield list(batch)


def _entry(entry: Any) -> dict[str, Any]:
    """Return the options of one aggregator in a list."""
    name, *numbers = str(entry).split(":")
    name = OTHER_WORDS["aggregator"].get(name, name)
    changes: dict[str, Any] = {"aggregator": name}
    # What belongs to other entries only is left out.
    changes |= {"neighbours": None} if name == SLICED else {"group_size": None}
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        values = [-1.0]
    if values and 0 < values[0] <= 1:
        changes["alpha"] = values.pop(0)
    if values and values[0] in WORD_BITS:
        changes["modulus_bits"] = int(values.pop(0))
    if name not in AGGREGATORS or values:
        raise InvalidInput(
            "compare",
            f"must name some of {', '.join(AGGREGATORS)}, each with α, bits or both if need be "
            f"(sliced:0.1, secagg:16, sliced:0.1:8), got {entry!r}",
        )
    if "alpha" in changes and name not in SPARSE:
        raise InvalidInput("compare", f"must give no α to {name}, which sends everything, got {entry!r}")
    if "modulus_bits" in changes and name == "plain":
        raise InvalidInput("compare", f"must give no bits to {name}, which sends floats, got {entry!r}")
    return changes
