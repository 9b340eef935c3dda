"""The examples: they learn, and they differ from Flower's quickstart by two lines."""

from __future__ import annotations

import gzip
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from flower.enrolment import enrol_users
from flower.local_grid import RUN, SERVER, LocalGrid
from sparsesecagg.lab.report import read_run

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, Any]]]:
    """Make an example importable; return its package and its settings."""
    folder, package = request.param
    monkeypatch.syspath_prepend(str(EXAMPLES / folder))
    settings = tomllib.loads((EXAMPLES / folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    yield package, settings
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


def run(package: str, settings: dict[str, Any], nodes: int) -> None:
    """Run an example's ServerApp with its ClientApp, in one process."""
    client = import_module(f"{package}.client_app").app
    server = import_module(f"{package}.server_app").app
    grid = LocalGrid(client, nodes, node_config=lambda index: {"num-partitions": nodes}, run_config=settings)
    context = Context(run_id=RUN, node_id=SERVER, node_config={}, state=RecordDict(), run_config=settings)
    server(grid, context)


@pytest.mark.parametrize("example", [("flower-digits", "digits_app")], indirect=True)
def test_digits_are_learnt(example: Any, tmp_path: Path, capsys: Any) -> None:
    package, settings = example
    run(package, {**settings, "run-dir": str(tmp_path / "run")}, nodes=10)
    rounds = read_run(tmp_path / "run").rounds
    assert len(rounds) == settings["num-server-rounds"]
    assert rounds[-1].accuracy is not None
    assert rounds[-1].accuracy > 0.88
    assert "Accuracy after round 10" in capsys.readouterr().out


@pytest.mark.parametrize("example", [("flower-digits", "digits_app")], indirect=True)
def test_digits_are_learnt_in_authenticated_rounds_too(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are named as the README names them for a simulation."""
    package, settings = example
    users = enrol_users(tmp_path / "users", 10)
    monkeypatch.setenv("SPARSESECAGG_ROSTER", str(users.roster))
    monkeypatch.setenv("SPARSESECAGG_RUN_KEY", str(users.folder / "{partition-id}.key"))
    own = {"secagg-roster": str(users.roster), "num-server-rounds": 1, "run-dir": str(tmp_path / "run")}
    run(package, {**settings, **own}, nodes=10)
    (done,) = read_run(tmp_path / "run").rounds
    assert done.survivors == 10
    assert '"authenticated": true' in (tmp_path / "run" / "config.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", [("flower-silos", "silos_app")], indirect=True)
def test_ten_silos_learn_with_every_record_protected(example: Any, capsys: Any) -> None:
    """Fewer rounds than the app's own, each with less noise: the machinery is the same."""
    pytest.importorskip("torch")
    package, settings = example
    run(package, {**settings, "num-server-rounds": 3, "epsilon": 8.0}, nodes=10)
    told = capsys.readouterr().out
    assert float(told.split("Accuracy after round 3: ")[1].split()[0]) > 0.85
    assert "(example level, zero-out neighbours, no amplification by sampling)" in told


@pytest.fixture
def tiny_mnist(tmp_path: Path) -> Path:
    """Write files in MNIST's format: a bright bar whose place is the label."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name, count in (("train", 600), ("t10k", 200)):
        labels = rng.integers(0, 10, count).astype(np.uint8)
        images = rng.integers(0, 40, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label + 3 : 2 * label + 6] += 200
        for suffix, array in (("images-idx3", images), ("labels-idx1", labels)):
            shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
            content = bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()
            (folder / f"{name}-{suffix}-ubyte.gz").write_bytes(gzip.compress(content, 1))
    return tmp_path


@pytest.mark.parametrize("example", [("flower-torch-mnist", "mnist_app")], indirect=True)
def test_a_torch_model_with_batch_normalisation_is_learnt(example: Any, tiny_mnist: Path, tmp_path: Path) -> None:
    import torch

    torch.set_num_threads(1)
    package, settings = example
    own = {"data-dir": str(tiny_mnist), "run-dir": str(tmp_path / "run"), "samples-per-node": 150}
    run(package, {**settings, **own, "num-server-rounds": 4}, nodes=4)
    rounds = read_run(tmp_path / "run").rounds
    assert [record.failed for record in rounds] == [False] * 4
    assert rounds[-1].accuracy is not None
    assert rounds[-1].accuracy > 0.8


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("flower-digits/digits_app/client_app.py", "@app.train(mods=[secagg_mod])"),
        ("flower-torch-mnist/mnist_app/client_app.py", "@app.train(mods=[secagg_mod])"),
        ("flower-digits/digits_app/server_app.py", "strategy = SecAgg("),
        ("flower-torch-mnist/mnist_app/server_app.py", "strategy = SecAgg("),
    ],
)
def test_each_side_mentions_secure_aggregation_in_one_statement_and_its_import(path: str, line: str) -> None:
    text = (EXAMPLES / path).read_text()
    code = text.split('"""', 2)[2]
    lines = [entry.strip() for entry in code.splitlines() if "secagg" in entry.lower()]
    mentions = [entry for entry in lines if not entry.startswith("roster=")]  # An argument in that statement.
    evaluating = ["@app.evaluate(mods=[secagg_mod])"] * ("flower-digits" in path and "client" in path)
    assert mentions[0].startswith("from sparsesecagg.flower import ")
    assert mentions[1:] == [line, *evaluating]
