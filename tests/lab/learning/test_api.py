"""Federated training in one call, and several runs with the same seeds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import (
    Dataset,
    DenseNetwork,
    FederatedRun,
    Task,
    TorchModel,
    TrainingConfig,
    train_federated,
)
from sparsesecagg.lab.learning.aggregation import RoundLine
from sparsesecagg.lab.learning.api import batches_of, create_runs, plan_runs, resume_runs

from .support import blobs, real_data
from .test_federated import finish

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
    torch.manual_seed(0)
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


NAMES = ["sliced", "secagg", "plain"]
SMALL: dict[str, Any] = {
    "dataset": "blobs", "clients": 10, "rounds": 2, "hidden": 8, "alpha": 0.5, "dropout": 0.1, "lr": 0.1, "batch": 8,
    "epochs": 2,
}  # fmt: skip


def created(folder: Path, **options: Any) -> list[FederatedRun]:
    """Make the runs on points of three clouds."""
    return create_runs(plan_runs(SMALL | options), folder, dataset=blobs())


def run_all(runs):
    """Run one after the other to the end."""
    for run in runs:
        finish(run)
    return runs


def test_each_run_is_as_if_it_were_alone(tmp_path: Path) -> None:
    """The same folder and the same model."""
    runs = run_all(created(tmp_path / "all", aggregator=NAMES))
    assert json.loads((tmp_path / "all" / "comparison.json").read_text()) == {"runs": NAMES}
    for name, run in zip(NAMES, runs, strict=True):
        (config,) = plan_runs(SMALL | {"aggregator": name}).values()
        finish(FederatedRun.create(config, Task.prepare(config, dataset=blobs()), tmp_path / f"{name} alone"))
        assert run.summary().rounds == 2
        own, other = (folder / "model.npz" for folder in (tmp_path / "all" / name, tmp_path / f"{name} alone"))
        assert own.read_bytes() == other.read_bytes()


def test_users_drop_out_alike_in_all_runs(tmp_path: Path) -> None:
    """Same seeds: the comparison is of aggregators, not of luck. Without keys nobody misses a third round, though."""
    runs = run_all(created(tmp_path / "all", aggregator=NAMES, rounds=4, dropout=0.2))
    survivors = [[line["survivors"] for line in run.folder.metrics()] for run in runs]
    without_package = [line["dropped"]["SHARE_KEYS"] for line in runs[0].folder.metrics()]
    assert survivors[0] == survivors[1] and without_package[:2] == [0, 0]
    assert all(a <= c <= a + b for a, b, c in zip(survivors[0], without_package, survivors[2], strict=True))


def test_options_of_one_aggregator_do_not_disturb_the_others() -> None:
    """Slices have groups, published graphs have degrees; each run gets what it knows."""
    configs = plan_runs(SMALL | {"aggregator": ["sliced", "secagg-plus"], "group_size": 5, "neighbours": 6})
    assert [(c.options.group_size, c.options.neighbours) for c in configs.values()] == [(5, None), (None, 6)]


def test_any_option_may_be_a_list_and_seeds_vary_slowest() -> None:
    """One run for each combination; the names say in what they differ."""
    configs = plan_runs(SMALL | {"seed": [3, 4], "aggregator": ["sliced", "plain"], "lr": [0.1, 0.2]})
    assert list(configs) == [
        f"{name}-lr-{lr}-seed-{seed}" for seed in (3, 4) for name in ("sliced", "plain") for lr in (0.1, 0.2)
    ]
    assert [(c.seed, c.aggregator, c.lr) for c in configs.values()][3] == (3, "plain", 0.2)


def test_runs_of_one_seed_share_data_and_processes(tmp_path: Path) -> None:
    """Another seed deals other samples; another learning rate needs other workers."""
    runs = created(tmp_path / "all", seed=[0, 1], aggregator=["sliced", "plain"])
    assert runs[0].task is runs[1].task and runs[0].task is not runs[2].task
    assert runs[0].task.dataset is runs[2].task.dataset
    assert [len(batch) for batch in batches_of(runs)] == [2, 2]
    assert [len(batch) for batch in batches_of(created(tmp_path / "lr", lr=[0.1, 0.2]))] == [1, 1]


def test_all_runs_resume(tmp_path: Path) -> None:
    """Each one continues where it was; options must be the same."""
    options = {"dataset": "digits", "samples": 200, "rounds": 1, "seed": [0, 1], "aggregator": ["sliced", "plain"]}
    run_all(create_runs(plan_runs(SMALL | options), tmp_path / "all"))
    with pytest.raises(InvalidInput, match="begun with alpha"):
        resume_runs(tmp_path / "all", {"alpha": 0.3})
    assert [run.round_number for run in run_all(resume_runs(tmp_path / "all", {"rounds": 2}))] == [2] * 4


@pytest.mark.parametrize("content", ["{}", "[", '{"runs": []}', '{"runs": [3]}'])
def test_a_damaged_list_of_runs_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "comparison.json").write_text(content)
    with pytest.raises(InvalidInput, match=r"resume .*comparison.json is damaged \(.*: restore it or begin a new run"):
        resume_runs(tmp_path, {})


def test_an_entry_may_have_its_own_alpha_and_words(tmp_path: Path) -> None:
    """α first; `full` is another name of secagg."""
    entries = ["sliced:0.2:8", "sliced:8", "sliced", "full"]
    runs = run_all(created(tmp_path / "all", aggregator=entries, hidden=64, rounds=1))
    assert [run.folder.path.name for run in runs] == ["sliced-0.2-8", "sliced-8", "sliced", "full"]
    assert [(run.config.options.alpha, run.config.modulus_bits) for run in runs[:2]] == [(0.2, 8), (0.5, 8)]
    sizes = [run.summary().upload_bytes_per_client_round for run in runs]
    assert sizes[0] < 0.65 * sizes[1] and sizes[1] < 0.65 * sizes[2] and sizes[2] < 0.3 * sizes[3]


@pytest.mark.parametrize(
    "names",
    [
        [], ["plain", "plain"], ["plain", "secag"], ["plain", ""], ["sliced:x"], ["sliced:8:9"], ["sliced:8:0.1"],
        ["sliced:2"], ["secagg:0.1"], ["plain:8"], ["sliced:0.1:8:1"],
    ],
)  # fmt: skip
def test_bad_entries_are_refused(names) -> None:
    """Unknown ones, one twice, numbers that are neither α nor bits or in another order, what has no α or no words."""
    with pytest.raises(InvalidInput) as caught:
        plan_runs(SMALL | {"aggregator": names})
    assert caught.value.option == "compare"


def test_one_impossible_run_stops_all_before_anything_is_written(tmp_path: Path) -> None:
    """The second entry has a threshold that its group of ten can't have."""
    with pytest.raises(InvalidInput):
        created(tmp_path / "all", aggregator=["sliced", "secagg"], threshold=4, group_size=5)
    assert not (tmp_path / "all").exists()
