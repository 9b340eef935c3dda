"""Several runs in one folder: aggregators, seeds and swept options."""

import json
from pathlib import Path
from typing import Any

import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import FederatedRun, Task
from sparsesecagg.lab.learning.comparison import batches_of, create_runs, is_comparison, plan_runs, resume_runs

from .support import blobs
from .test_federated import finish

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
    assert is_comparison(tmp_path / "all") and not is_comparison(tmp_path / "all" / "plain-seed-1")
    with pytest.raises(InvalidInput, match="begun with alpha"):
        resume_runs(tmp_path / "all", {"alpha": 0.3})
    assert [run.round_number for run in run_all(resume_runs(tmp_path / "all", {"rounds": 2}))] == [2] * 4


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
