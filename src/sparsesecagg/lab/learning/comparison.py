"""Several aggregators on the same task with the same seeds: one folder with a run folder for each.

An entry of a comparison is the name of an aggregator, with its own α or the bits of its words if they should differ
from the other entries': `sliced:0.1:8`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsesecagg.errors import InvalidInput
from sparsesecagg.files import write_atomically
from sparsesecagg.lab.learning.aggregators import AGGREGATORS, OTHER_NAMES, SLICED, make_aggregator
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import FederatedRun, Task, resumed_config
from sparsesecagg.lab.learning.run_folder import RunFolder, check_free

LIST = "comparison.json"


def create_comparison(config: TrainingConfig, entries: Sequence[str], task: Task, out: Path) -> list[FederatedRun]:
    """Check all runs, then make the folder `out` with one run folder per entry."""
    configs = {folder_name(entry): _entry_config(config, entry) for entry in entries}
    if len(configs) != len(entries) or not entries:
        raise InvalidInput("compare", f"must name each aggregator once, got {','.join(entries)!r}")
    for one in configs.values():
        make_aggregator(one, task.model, task.initial)
    check_free(out)
    runs = [FederatedRun.create(one, task, out / name) for name, one in configs.items()]
    write_atomically(out / LIST, json.dumps({"runs": list(configs)}) + "\n")
    return runs


def folder_name(entry: str) -> str:
    """Return what an entry's run is called: `sliced:0.1:8` is `sliced-0.1-8`."""
    return entry.replace(":", "-")


def is_comparison(run_dir: Path) -> bool:
    """Tell whether a folder holds a comparison."""
    return (run_dir / LIST).is_file()


def resume_comparison(
    run_dir: Path, options: Mapping[str, Any], *, data_dir: Path | None = None, entries: Sequence[str] | None = None
) -> list[FederatedRun]:
    """Go on with all runs of a comparison; those that are finished stay as they are."""
    stored = json.loads((run_dir / LIST).read_text())["runs"]
    if entries is not None and [folder_name(entry) for entry in entries] != stored:
        raise InvalidInput("resume", f"{run_dir} compares {','.join(stored)}, not {','.join(entries)}")
    for name in stored:  # All are checked before the first one changes.
        resumed_config(RunFolder.resume(run_dir / name), options)
    first = FederatedRun.resume(run_dir / stored[0], options, data_dir=data_dir)
    return [first, *(FederatedRun.resume(run_dir / name, options, task=first.task) for name in stored[1:])]


def _entry_config(config: TrainingConfig, entry: str) -> TrainingConfig:
    name, *further = entry.split(":")
    changes: dict[str, Any] = {"aggregator": OTHER_NAMES.get(name, name)}
    try:
        for number in map(float, further):
            # Words have 4 bits or more, and α is at most 1.
            changes |= {"modulus_bits": int(number)} if number.is_integer() and number > 1 else {"alpha": number}
    except ValueError:
        name = ""
    if changes["aggregator"] not in AGGREGATORS or not name or len(changes) != 1 + len(further):
        raise InvalidInput(
            "compare",
            f"must name some of {', '.join(AGGREGATORS)}, with α or bits if need be (sliced:0.1:8), got {entry!r}",
        )
    # What belongs to other entries of the comparison only is left out.
    changes |= {"neighbours": None} if name == SLICED else {"group_size": None}
    return config.replace(**changes)
