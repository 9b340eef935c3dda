"""Small data files and tasks that several tests share."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from sparsesecagg.lab.learning import Dataset, TrainingConfig
from sparsesecagg.lab.learning.data.sources import SOURCES
from sparsesecagg.lab.learning.federated import Task

IDX_SHAPES = {"train-images": (30, 28, 28), "train-labels": (30,), "t10k-images": (10, 28, 28), "t10k-labels": (10,)}


def idx_bytes(array: np.ndarray) -> bytes:
    """Write an IDX file by hand."""
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


def write_idx_files(folder: Path, name: str = "mnist", packed: bool = True) -> None:
    """Write four tiny files with the names of MNIST's."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for remote in SOURCES[name].files:
        shape = next(shape for part, shape in IDX_SHAPES.items() if remote.name.startswith(part))
        content = idx_bytes(random.integers(0, 256 if len(shape) > 1 else 10, shape))
        file = remote.name if packed else remote.name.removesuffix(".gz")
        (folder / file).write_bytes(gzip.compress(content, mtime=0) if packed else content)


def cifar_records(seed: int, count: int = 4) -> bytes:
    """Return a tiny binary batch."""
    random = np.random.default_rng(seed)
    rows = random.integers(0, 256, (count, 3073), dtype=np.uint8)
    rows[:, 0] = random.integers(0, 10, count)
    return rows.tobytes()


def blobs(samples: int = 120, classes: int = 3, features: int = 6, seed: int = 0) -> Dataset:
    """Return an easy task: one cloud of points per class."""
    random = np.random.default_rng(seed)
    labels = np.arange(samples) % classes
    centres = 3 * random.standard_normal((classes, features))
    return Dataset.from_arrays(centres[labels] + random.standard_normal((samples, features)), labels, name="blobs")


def small_task(**options: object) -> tuple[TrainingConfig, Task]:
    """Return a run of ten users that is done in a moment; `options` change it."""
    chosen = {"clients": 10, "rounds": 3, "hidden": 8, "alpha": 0.5, "dropout": 0.1, "lr": 0.1, "batch": 8, "epochs": 2}
    config = TrainingConfig.create("blobs", **(chosen | options))
    return config, Task.prepare(config, dataset=blobs())


def real_data() -> Path:
    """Return the folder of the real data sets, or skip the test."""
    beside_the_project = Path(__file__).parents[3].parent / "shared" / "data"
    folder = Path(os.environ.get("SPARSESECAGG_DATA", beside_the_project))
    if not (folder / "mnist").is_dir():
        pytest.skip("needs the real MNIST files: set SPARSESECAGG_DATA")
    return folder
