"""Several aggregators on the same task, side by side."""

import json
from pathlib import Path

import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import FederatedRun, Task, TrainingConfig
from sparsesecagg.lab.learning.comparison import create_comparison, is_comparison, resume_comparison

from .support import small_task
from .test_federated import finish

NAMES = ["sliced", "secagg", "plain"]


def run_all(runs):
    """Run one after the other to the end."""
    for run in runs:
        finish(run)
    return runs


def test_each_run_is_as_if_it_were_alone(tmp_path: Path) -> None:
    """The same folder and the same model."""
    config, task = small_task(rounds=2)
    runs = run_all(create_comparison(config, NAMES, task, tmp_path / "all"))
    assert json.loads((tmp_path / "all" / "comparison.json").read_text()) == {"runs": NAMES}
    for name, run in zip(NAMES, runs, strict=True):
        alone = FederatedRun.create(config.replace(aggregator=name), task, tmp_path / f"{name} alone")
        finish(alone)
        assert run.summary().rounds == 2
        own, other = (folder / "model.npz" for folder in (tmp_path / "all" / name, tmp_path / f"{name} alone"))
        assert own.read_bytes() == other.read_bytes()


def test_users_drop_out_alike_in_all_runs(tmp_path: Path) -> None:
    """Same seeds: the comparison is of aggregators, not of luck. Without keys nobody misses a third round, though."""
    config, task = small_task(rounds=4, dropout=0.2)
    runs = run_all(create_comparison(config, NAMES, task, tmp_path / "all"))
    survivors = [[line["survivors"] for line in run.folder.metrics()] for run in runs]
    without_package = [line["dropped"]["SHARE_KEYS"] for line in runs[0].folder.metrics()]
    assert survivors[0] == survivors[1] and without_package[:2] == [0, 0]
    assert all(a <= c <= a + b for a, b, c in zip(survivors[0], without_package, survivors[2], strict=True))


def test_options_of_one_aggregator_do_not_disturb_the_others(tmp_path: Path) -> None:
    """Slices have groups, published graphs have degrees; each run gets what it knows."""
    config, task = small_task(rounds=1, group_size=5, neighbours=6)
    runs = create_comparison(config, ["sliced", "secagg-plus", "plain"], task, tmp_path / "all")
    found = [(run.config.options.group_size, run.config.options.neighbours) for run in runs]
    assert found == [(5, None), (None, 6), (None, 6)]


def test_a_comparison_resumes(tmp_path: Path) -> None:
    """Each run continues where it was; options must be the same."""
    config = TrainingConfig.create("digits", clients=10, rounds=1, hidden=8, alpha=0.5, dropout=0.1, samples=200)
    task = Task.prepare(config)
    run_all(create_comparison(config, ["sliced", "plain"], task, tmp_path / "all"))
    assert is_comparison(tmp_path / "all") and not is_comparison(tmp_path / "all" / "plain")
    with pytest.raises(InvalidInput, match="begun with alpha"):
        resume_comparison(tmp_path / "all", {"alpha": 0.3})
    with pytest.raises(InvalidInput, match="compares sliced,plain"):
        resume_comparison(tmp_path / "all", {}, entries=["plain"])
    assert [run.round_number for run in run_all(resume_comparison(tmp_path / "all", {"rounds": 2}))] == [2, 2]


def test_an_entry_may_have_its_own_alpha_and_words(tmp_path: Path) -> None:
    """In any order; `full` is another name of secagg."""
    config, task = small_task(rounds=1, hidden=64)
    entries = ["sliced:0.2:8", "sliced:8", "sliced", "full"]
    runs = run_all(create_comparison(config, entries, task, tmp_path / "all"))
    assert [run.folder.path.name for run in runs] == ["sliced-0.2-8", "sliced-8", "sliced", "full"]
    assert [(run.config.options.alpha, run.config.modulus_bits) for run in runs[:2]] == [(0.2, 8), (0.5, 8)]
    sizes = [run.summary().upload_bytes_per_client_round for run in runs]
    assert sizes[0] < 0.65 * sizes[1] and sizes[1] < 0.65 * sizes[2] and sizes[2] < 0.3 * sizes[3]


@pytest.mark.parametrize(
    "names", [[], ["plain", "plain"], ["plain", "secag"], ["plain", ""], ["sliced:x"], ["sliced:8:9"]]
)
def test_bad_names_write_nothing(tmp_path: Path, names) -> None:
    """Unknown ones, or one twice."""
    config, task = small_task()
    with pytest.raises(InvalidInput) as caught:
        create_comparison(config, names, task, tmp_path / "all")
    assert caught.value.option == "compare" and not (tmp_path / "all").exists()


def test_one_impossible_run_stops_all_before_anything_is_written(tmp_path: Path) -> None:
    """The second entry has a threshold that its group of ten can't have."""
    config, task = small_task(threshold=4, group_size=5)
    with pytest.raises(InvalidInput):
        create_comparison(config, ["sliced", "secagg"], task, tmp_path / "all")
    assert not (tmp_path / "all").exists()
