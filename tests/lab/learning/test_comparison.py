"""Several aggregators on the same task, side by side."""

import json
from pathlib import Path

import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import FederatedRun, Task, TrainingConfig
from sparsesecagg.lab.learning.comparison import create_comparison, is_comparison, note_shared_cores, resume_comparison
from sparsesecagg.lab.learning.side_by_side import SideBySide
from sparsesecagg.lab.learning.workers import WorkerError

from .support import small_task
from .test_federated import finish

NAMES = ["committee", "secagg", "plain"]


def run_all(runs, workers):
    """Run to the end; return (run, round) in the order in which they came, and the runs."""
    with SideBySide(runs, workers, at_once=workers > 1) as work:
        order = [(number, metrics.round) for number, metrics in work.rounds()]
    return order, work.runs


@pytest.mark.parametrize("workers", [1, 2])
def test_each_run_is_as_if_it_were_alone(tmp_path: Path, workers: int) -> None:
    """One after the other on one core, or at the same time on two."""
    config, task = small_task(rounds=2)
    order, runs = run_all(create_comparison(config, NAMES, task, tmp_path / "all"), workers)
    assert sorted(order) == [(number, round_number) for number in range(3) for round_number in (1, 2)]
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
    _, runs = run_all(create_comparison(config, ["committee", "secagg", "plain"], task, tmp_path / "all"), 1)
    survivors = [[line["survivors"] for line in run.folder.metrics()] for run in runs]
    without_package = [line["dropped"]["SHARE_KEYS"] for line in runs[0].folder.metrics()]
    assert survivors[0] == survivors[1] and without_package[:2] == [0, 0]
    assert all(a <= c <= a + b for a, b, c in zip(survivors[0], without_package, survivors[2], strict=True))


def test_options_of_one_aggregator_do_not_disturb_the_others(tmp_path: Path) -> None:
    """Committees have sizes, published graphs have degrees; each run gets what it knows."""
    config, task = small_task(rounds=1, committee_size=5, neighbours=6)
    runs = create_comparison(config, ["committee", "secagg-plus", "plain"], task, tmp_path / "all")
    assert [(run.config.committee_size, run.config.neighbours) for run in runs] == [(5, None), (None, 6), (None, 6)]


def test_a_comparison_resumes(tmp_path: Path) -> None:
    """Each run goes on where it was; options must be the same."""
    config = TrainingConfig.create("digits", clients=10, rounds=1, hidden=8, alpha=0.5, dropout=0.1, samples=200)
    task = Task.prepare(config)
    run_all(create_comparison(config, ["committee", "plain"], task, tmp_path / "all"), 1)
    assert is_comparison(tmp_path / "all") and not is_comparison(tmp_path / "all" / "plain")
    with pytest.raises(InvalidInput, match="begun with alpha"):
        resume_comparison(tmp_path / "all", {"alpha": 0.3})
    with pytest.raises(InvalidInput, match="compares committee,plain"):
        resume_comparison(tmp_path / "all", {}, entries=["plain"])
    order, _ = run_all(resume_comparison(tmp_path / "all", {"rounds": 2}), 1)
    assert sorted(order) == [(0, 2), (1, 2)]


def test_words_of_several_lengths_are_compared(tmp_path: Path) -> None:
    """`committee:8` is a run of its own, beside that of the default length."""
    config, task = small_task(rounds=1, hidden=64)
    _, runs = run_all(create_comparison(config, ["committee:8", "committee"], task, tmp_path / "all"), 1)
    assert [run.folder.path.name for run in runs] == ["committee-8", "committee"]
    sizes = [run.summary().upload_bytes_per_client_round for run in runs]
    assert sizes[0] < 0.65 * sizes[1]


@pytest.mark.parametrize("names", [[], ["plain", "plain"], ["plain", "secag"], ["plain", ""], ["committee:x"]])
def test_bad_names_write_nothing(tmp_path: Path, names) -> None:
    """Unknown ones, or one twice."""
    config, task = small_task()
    with pytest.raises(InvalidInput) as caught:
        create_comparison(config, names, task, tmp_path / "all")
    assert caught.value.option == "compare" and not (tmp_path / "all").exists()


def test_one_impossible_run_stops_all_before_anything_is_written(tmp_path: Path) -> None:
    """Pairwise can't hide weights, whatever committees can do."""
    config, task = small_task(weighting="samples")
    with pytest.raises(InvalidInput):
        create_comparison(config, ["committee", "pairwise"], task, tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_an_error_in_one_process_reaches_the_caller(tmp_path: Path) -> None:
    """As the error that it was, or described."""
    config, task = small_task(lr=1e30)
    with pytest.raises(InvalidInput, match="diverge"):
        run_all(create_comparison(config, ["committee", "plain"], task, tmp_path / "all"), 2)


def test_a_run_whose_process_dies_is_an_error_and_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the kernel ends it for want of memory."""
    config, task = small_task()
    monkeypatch.setattr(FederatedRun, "rounds", lambda self, pool: __import__("os")._exit(9))
    with pytest.raises(WorkerError, match="code 9"):
        run_all(create_comparison(config, ["committee", "plain"], task, tmp_path / "all"), 2)


def test_runs_come_one_after_the_other_unless_asked_for_so_that_seconds_compare(tmp_path: Path) -> None:
    """With two processes too; those train the users of one run."""
    config, task = small_task(rounds=2)
    with SideBySide(create_comparison(config, ["committee", "plain"], task, tmp_path / "all"), 2) as work:
        order = [(number, metrics.round) for number, metrics in work.rounds()]
    assert order == [(0, 1), (0, 2), (1, 1), (1, 2)]
    note_shared_cores(tmp_path / "all")
    assert json.loads((tmp_path / "all" / "comparison.json").read_text())["at_once"] is True
