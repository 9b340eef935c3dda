"""Several aggregators on the same task with the same seeds: one folder with a run folder for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsesecagg.errors import InvalidInput
from sparsesecagg.learning.aggregators import check_name, make_aggregator
from sparsesecagg.learning.config import TrainingConfig
from sparsesecagg.learning.federated import FederatedRun, Task
from sparsesecagg.learning.run_folder import check_free, write_atomically

LIST = "comparison.json"


def create_comparison(config: TrainingConfig, names: Sequence[str], task: Task, out: Path) -> list[FederatedRun]:
    """Check all runs, then make the folder `out` with one run folder per aggregator."""
    if len(set(names)) != len(names) or not names:
        raise InvalidInput("compare", f"must name each aggregator once; got {','.join(names)!r}")
    for name in names:
        check_name(name, option="compare")
    configs = [config.replace(aggregator=name) for name in names]
    for one in configs:
        make_aggregator(one, task.model)
    check_free(out)
    runs = [FederatedRun.create(one, task, out / one.aggregator) for one in configs]
    write_atomically(out / LIST, (json.dumps({"runs": list(names)}) + "\n").encode())
    return runs


def is_comparison(run_dir: Path) -> bool:
    """Tell whether a folder holds a comparison."""
    return (run_dir / LIST).is_file()


def resume_comparison(
    run_dir: Path, options: Mapping[str, Any], *, data_dir: Path | None = None, names: Sequence[str] | None = None
) -> list[FederatedRun]:
    """Go on with all runs of a comparison; those that are finished stay as they are."""
    stored = json.loads((run_dir / LIST).read_text())["runs"]
    if names is not None and list(names) != stored:
        raise InvalidInput("resume", f"{run_dir} compares {','.join(stored)}, not {','.join(names)}")
    first = FederatedRun.resume(run_dir / stored[0], options, data_dir=data_dir)
    return [first, *(FederatedRun.resume(run_dir / name, options, task=first.task) for name in stored[1:])]
