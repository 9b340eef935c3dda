"""Federated training in one call."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import Dataset, DenseNetwork, TorchModel, TrainingConfig, train_federated
from sparsesecagg.lab.learning.metrics import RoundLine

from .support import blobs, real_data

OPTIONS: dict[str, Any] = {
    "clients": 10,
    "rounds": 3,
    "alpha": 0.5,
    "dropout": 0.1,
    "lr": 0.1,
    "batch": 8,
    "workers": 1,
}


def test_own_data_with_a_named_model(tmp_path: Path) -> None:
    """Arrays in, a trained model out."""
    seen: list[RoundLine] = []
    result = train_federated(blobs(), "softmax", out=tmp_path / "run", on_round=seen.append, **OPTIONS)
    assert result.accuracy > 0.9 and [line.round for line in seen] == [1, 2, 3]
    again = DenseNetwork(6, 3).evaluate(result.parameters, blobs().test_x, blobs().test_y)
    assert again.correct / again.samples == result.accuracy


def test_own_torch_module_with_batch_normalisation(tmp_path: Path) -> None:
    """The adapter carries parameters and statistics through the protocol."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    result = train_federated(blobs(), TorchModel(module), out=tmp_path / "run", **(OPTIONS | {"rounds": 6}))
    assert result.accuracy > 0.9


def test_a_bare_module_is_the_model_that_is_trained(tmp_path: Path) -> None:
    """Its own weights are the first ones, and the record has its size; anything else is refused by name."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(6, 3)
    with torch.no_grad():
        net.weight.fill_(0.25)
    options = OPTIONS | {"rounds": 1, "lr": 1e-9, "aggregator": "plain", "downlink": "model"}
    result = train_federated(blobs(), net, out=tmp_path / "run", **options)
    assert len(result.parameters) == 21 and np.allclose(result.parameters[:18], 0.25, atol=1e-4)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["dim"] == 21
    bad: Any
    for bad in (7, net.state_dict(), lambda: "a net", torch.nn.Linear):
        with pytest.raises(InvalidInput, match=r"model must be "):
            train_federated(blobs(), bad, out=tmp_path / "none")


def test_the_seed_decides_the_first_weights_of_a_module_that_a_function_makes(tmp_path: Path) -> None:
    """The same seed gives the same model to the last bit, another seed another one."""
    torch = pytest.importorskip("torch")
    found = [
        train_federated(
            blobs(), lambda: torch.nn.Linear(6, 3), seed=seed, out=tmp_path / str(n), **(OPTIONS | {"rounds": 1})
        ).parameters
        for n, seed in enumerate((5, 5, 6))
    ]
    assert np.array_equal(found[0], found[1]) and not np.allclose(found[0], found[2])


def test_options_have_one_set_of_names(tmp_path: Path) -> None:
    """Those of the command line, its other words included."""
    config = TrainingConfig.create(pattern="full", weighting="samples", gain="2", drop_at="unmask")
    assert (config.aggregator, config.weights, config.gain) == ("secagg", "examples", 2.0)
    assert config == TrainingConfig.create(aggregator="secagg", weights="examples", gain=2.0, drop_at="unmask")


def test_a_run_is_resumed_with_the_same_data(tmp_path: Path) -> None:
    """And with more rounds, if one likes."""
    train_federated(blobs(), "softmax", out=tmp_path / "run", **OPTIONS)
    result = train_federated(blobs(), resume=tmp_path / "run", rounds=4, workers=1)
    assert result.rounds == 4


def test_without_a_folder_a_new_one_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In runs/, and never an old one."""
    monkeypatch.chdir(tmp_path)
    one, other = (train_federated(blobs(), "softmax", **(OPTIONS | {"rounds": 1})) for _ in range(2))
    assert one.run_dir != other.run_dir and one.run_dir.parent.name == "runs"


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    """A typing error is not ignored."""
    with pytest.raises(InvalidInput, match="alfa is not an option"):
        train_federated(blobs(), out=tmp_path / "run", alfa=0.1)


@pytest.mark.parametrize("bits", [8, 16])
def test_digits_reach_92_percent_with_slices(tmp_path: Path, bits: int) -> None:
    """The embedded data with every default but fewer rounds: 50 users, θ = 0.1, the gain adapts."""
    result = train_federated("digits", out=tmp_path / "run", modulus_bits=bits, target_accuracy=0.92, rounds=25)
    assert result.reached_target_at is not None


def test_real_mnist_is_learnt(tmp_path: Path) -> None:
    """A small part of it, a few users, the small convolutional network, eight-bit words."""
    pytest.importorskip("torch")
    folder = real_data()
    result = train_federated(
        "mnist", out=tmp_path / "run", data_dir=folder, samples=2000, clients=10, rounds=5, epochs=3, lr=0.05,
        alpha=0.5, dropout=0.1, modulus_bits=8,
    )  # fmt: skip
    assert result.accuracy > 0.8


def test_an_own_data_set_needs_a_network_that_fits() -> None:
    """A convolutional network for points is refused by name."""
    data = Dataset.from_arrays(np.zeros((20, 3)), np.arange(20) % 2)
    with pytest.raises(InvalidInput, match="small-cnn takes samples of shape"):
        train_federated(data, "small-cnn", clients=5)
