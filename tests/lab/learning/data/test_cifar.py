"""CIFAR-10 batches, binary and Python."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.data.cifar import read_binary_batch, read_python_batch

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (4, 3072), dtype=np.uint8)
LABELS = [3, 0, 9, 5]


def test_both_formats_hold_the_same_images(tmp_path: Path) -> None:
    """Red, green and blue planes of 32 × 32, labels 0 to 9."""
    records = b"".join(bytes([label]) + row.tobytes() for label, row in zip(LABELS, PIXELS, strict=True))
    (tmp_path / "batch.bin").write_bytes(records)
    (tmp_path / "batch").write_bytes(pickle.dumps({b"data": PIXELS, b"labels": LABELS}, protocol=2))
    for images, labels in (read_binary_batch(tmp_path / "batch.bin"), read_python_batch(tmp_path / "batch")):
        assert images.shape == (4, 3, 32, 32) and labels.tolist() == LABELS
        assert np.array_equal(images[1, 2].reshape(-1), PIXELS[1, 2048:])


class Harmful:
    """Would run a command when unpickled."""

    def __reduce__(self):
        import os

        return os.system, ("echo harm",)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    """Only arrays are rebuilt."""
    (tmp_path / "batch").write_bytes(pickle.dumps({b"data": Harmful(), b"labels": LABELS}))
    with pytest.raises(InvalidInput, match="system"):
        read_python_batch(tmp_path / "batch")


@pytest.mark.parametrize(
    "content",
    [
        {b"data": PIXELS},
        {b"data": PIXELS[:, :5], b"labels": LABELS},
        {b"data": PIXELS, b"labels": [10, 0, 0, 0]},
        {b"data": PIXELS, b"labels": [1]},
        {b"data": PIXELS.astype(np.float32), b"labels": LABELS},
        [1, 2],
    ],
)
def test_other_pickles_are_refused(tmp_path: Path, content) -> None:
    """The error names the file."""
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(content))
    with pytest.raises(InvalidInput, match="data_batch_1"):
        read_python_batch(tmp_path / "data_batch_1")


@pytest.mark.parametrize("content", [b"", b"\x00" * 3072, b"\x0a" + b"\x00" * 3072])
def test_damaged_binary_batches_are_refused(tmp_path: Path, content) -> None:
    """Cut short, or with a label that does not exist."""
    (tmp_path / "data_batch_1.bin").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"data_batch_1\.bin"):
        read_binary_batch(tmp_path / "data_batch_1.bin")
