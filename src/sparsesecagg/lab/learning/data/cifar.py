"""Read CIFAR-10 batches in the binary and in the Python format."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput

IMAGE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS

# What a CIFAR batch needs to be rebuilt, and nothing else: a pickle may name any function to call.
_ALLOWED = {"_reconstruct", "ndarray", "dtype"}


def read_binary_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return (images, labels) of a `.bin` batch: records of a label byte and 3,072 pixel bytes."""
    raw = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    if raw.size == 0 or raw.size % _RECORD:
        raise InvalidInput("data_dir", f"holds {path}, whose length is not a multiple of {_RECORD} bytes")
    records = raw.reshape(-1, _RECORD)
    return _checked(path, records[:, 1:], records[:, 0])


def read_python_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return (images, labels) of a pickled batch, without letting the pickle run anything else."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="bytes").load()
        data, labels = np.asarray(content[b"data"]), np.asarray(content[b"labels"])
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        raise InvalidInput("data_dir", f"holds {path}, which is not a CIFAR-10 batch: {problem}") from problem
    return _checked(path, data, labels)


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in _ALLOWED:
            # The original batches name `numpy.core`, which newer NumPy calls `numpy._core`.
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it wants to call {module}.{name}")


def _checked(path: Path, data: NDArray[Any], labels: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape != (len(labels), _PIXELS):
        raise InvalidInput("data_dir", f"holds {path}, whose images are not rows of {_PIXELS} bytes")
    if len(labels) == 0 or labels.min() < 0 or labels.max() > 9:
        raise InvalidInput("data_dir", f"holds {path}, whose labels are not 0 to 9")
    return data.reshape(-1, *IMAGE), labels.astype(np.int64)
