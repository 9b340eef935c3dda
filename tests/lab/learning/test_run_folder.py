"""The run folder: complete after every round, whatever happens."""

import json
from pathlib import Path

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.data import make_partition
from sparsesecagg.lab.learning.models import Layer
from sparsesecagg.lab.learning.run_folder import Checkpoint, RunFolder

from .support import blobs

FIRST = Checkpoint(0, np.arange(5, dtype=np.float32), {"clips": np.ones(2)})


@pytest.fixture
def folder(tmp_path: Path):
    """A new run folder."""
    return RunFolder.create(tmp_path / "run", {"alpha": 0.2}, make_partition(blobs(), "iid", 4, 0), FIRST)


def test_a_new_folder_can_be_resumed_at_once(folder) -> None:
    """A kill in the first round loses nothing else."""
    back = RunFolder.resume(folder.path)
    assert back.config() == {"alpha": 0.2} and back.metrics() == []
    assert np.array_equal(back.checkpoint().parameters, FIRST.parameters)
    assert {path.name for path in folder.path.iterdir()} == {
        "config.json", "partition.json", "partition.npz", "metrics.jsonl", "checkpoint.npz",
    }  # fmt: skip


def test_a_checkpoint_is_read_back_bit_for_bit(folder) -> None:
    """Parameters, round and the aggregator's state."""
    folder.save_checkpoint(Checkpoint(7, np.array([0.1, np.pi], np.float32), {"clips": np.array([1 / 3])}))
    back = folder.checkpoint()
    assert back.round_number == 7 and back.aggregator["clips"][0] == 1 / 3
    assert back.parameters.tobytes() == np.array([0.1, np.pi], np.float32).tobytes()


def test_lines_without_a_checkpoint_are_cut_off(folder) -> None:
    """Also one that a kill left half written."""
    for number in (1, 2, 3):
        folder.append_metrics({"round": number})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "accu')
    assert folder.cut_metrics(2) == [{"round": 1}, {"round": 2}] == folder.metrics()
    folder.append_metrics({"round": 3})
    assert [line["round"] for line in folder.metrics()] == [1, 2, 3]


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    """A second run never mixes with a first one."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="not empty"):
        RunFolder.create(tmp_path, {}, make_partition(blobs(), "iid", 4, 0), FIRST)
    with pytest.raises(InvalidInput, match="got the file"):
        RunFolder.create(tmp_path / "notes.txt", {}, make_partition(blobs(), "iid", 4, 0), FIRST)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_what_is_no_run_can_not_be_resumed(folder, content) -> None:
    """No folder, or one with a broken configuration: the error names the option."""
    if content is None:
        (folder.path / "config.json").unlink()
    else:
        (folder.path / "config.json").write_text(content)
    with pytest.raises(InvalidInput) as caught:
        RunFolder.resume(folder.path).config()
    assert caught.value.option == "resume"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("checkpoint.npz", b""),
        ("checkpoint.npz", b"PK\x03\x04"),
        ("metrics.jsonl", b""),
        ("metrics.jsonl", b"x{\n"),
        ("metrics.jsonl", b"3\n"),
        ("metrics.jsonl", b"{}\n"),
        ("metrics.jsonl", b"\xff\n"),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(folder, name: str, content: bytes) -> None:
    """A record that lacks a finished round is damaged, too."""
    folder.append_metrics({"round": 1})
    folder.save_checkpoint(FIRST)
    (folder.path / name).write_bytes(content)
    with pytest.raises(
        InvalidInput, match=rf"resume .*{name} is damaged \(.*: restore it or begin a new run"
    ) as caught:
        folder.cut_metrics(1) and folder.checkpoint()
    assert caught.value.option == "resume"


def test_the_model_says_where_its_layers_lie(folder) -> None:
    """And the same model always gives the same bytes."""
    layers = (Layer("weight", 0, 4), Layer("bias", 4, 5))
    folder.save_model(FIRST.parameters, layers)
    first = (folder.path / "model.npz").read_bytes()
    folder.save_model(FIRST.parameters, layers)
    assert (folder.path / "model.npz").read_bytes() == first
    with np.load(folder.path / "model.npz") as stored:
        assert stored["layer_names"].tolist() == ["weight", "bias"] and stored["layer_stops"].tolist() == [4, 5]


def test_metrics_are_valid_json(folder) -> None:
    """NaN is not JSON, and is refused rather than written."""
    with pytest.raises(ValueError, match="JSON"):
        folder.append_metrics({"round": 1, "loss": float("nan")})
    json.loads((folder.path / "config.json").read_text())
