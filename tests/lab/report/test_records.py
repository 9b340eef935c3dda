"""Reading run folders: tolerant where aggregators differ, strict where a file is no run."""

import json
from pathlib import Path

import msgspec
import pytest

from lab.report.synthetic import write_comparison, write_run
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.report import read_folder, read_run, read_runs


def append(folder: Path, text: str) -> None:
    """Add text to the metrics of a run."""
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(text)


def test_a_run_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Options, partition and every round come back, in order."""
    folder = write_run(tmp_path / "run", rounds=5, failed=(2,), classes=("cat", "dog"), clients=7)
    run = read_run(folder)
    assert run.name == run.aggregator == "sliced"
    assert run.config["alpha"] == 0.1
    assert [record.round for record in run.rounds] == [1, 2, 3, 4, 5]
    assert [record.failed for record in run.rounds] == [False, True, False, False, False]
    assert run.rounds[1].reason == "22 users left at UNMASK, 26 are needed"
    assert run.partition is not None
    assert run.partition.classes == ("cat", "dog")
    assert len(run.partition.counts) == 7


def test_what_a_run_really_used_comes_before_its_options(tmp_path: Path) -> None:
    """Options left to the aggregator are null in the configuration; the aggregator records its choice."""
    effective = {"modulus_bits": 8, "neighbours": None}
    run = read_run(write_run(tmp_path / "run", rounds=1, modulus_bits=None, effective=effective, neighbours=6))
    assert run.setting("modulus_bits") == 8
    assert run.setting("neighbours") == 6
    assert run.setting("alpha") == 0.1
    assert run.setting("unheard of") is None


def test_exposure_that_is_null_means_everything(tmp_path: Path) -> None:
    """Plain averaging hides nothing; a folder that says nothing about it claims nothing."""
    assert read_run(write_run(tmp_path / "1", "plain", rounds=1, expected_exposure=None)).expected_exposure == 1.0
    assert read_run(write_run(tmp_path / "2", rounds=1, expected_exposure=2e-5)).expected_exposure == 2e-5
    assert read_run(write_run(tmp_path / "3", rounds=1)).expected_exposure is None


def test_records_are_frozen(tmp_path: Path) -> None:
    """Nobody changes a record after it was read, the options included."""
    run = read_run(write_run(tmp_path / "run", rounds=1))
    with pytest.raises(AttributeError):
        run.rounds[0].accuracy = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        run.config["seed"] = 2  # type: ignore[index]


def test_plain_runs_may_lack_measurements(tmp_path: Path) -> None:
    """A line with nothing but its round is a round, and nulls count as absent."""
    folder = write_run(tmp_path / "run", "plain", rounds=1)
    append(
        folder, '{"round": 2}\n{"round": 3, "sent_bytes": null, "contributors": {"mean": null}, "upload_bytes": 9}\n'
    )
    bare, null = read_run(folder).rounds[1:]
    assert bare == msgspec.structs.replace(bare, round=2, accuracy=None, sent_bytes={}, upload_bytes=0.0)
    assert null.sent_bytes == {}
    assert null.contributors == {"mean": None}
    assert null.all_sent_bytes == 9


def test_a_diverged_loss_is_absent(tmp_path: Path) -> None:
    """NaN and Infinity, which are not JSON but which Python writes, do not end a report."""
    folder = write_run(tmp_path / "run", rounds=1)
    append(folder, '{"round": 2, "loss": NaN, "accuracy": 0.5}\n{"round": 3, "loss": Infinity}\n')
    assert [record.loss for record in read_run(folder).rounds[1:]] == [None, None]


def test_a_line_that_a_kill_cut_short_is_ignored(tmp_path: Path) -> None:
    """Everything before the last, unfinished line is whole."""
    folder = write_run(tmp_path / "run", rounds=3)
    append(folder, '{"round": 4, "accu')
    assert len(read_run(folder).rounds) == 3


def test_a_round_that_was_run_again_counts_once(tmp_path: Path) -> None:
    """The later line is the one that happened."""
    folder = write_run(tmp_path / "run", rounds=3)
    append(folder, '{"round": 3, "accuracy": 0.25}\n')
    rounds = read_run(folder).rounds
    assert [record.round for record in rounds] == [1, 2, 3]
    assert rounds[-1].accuracy == 0.25


def test_a_run_that_has_only_just_begun_has_no_rounds(tmp_path: Path) -> None:
    """No metrics file, no rounds, no error."""
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "metrics.jsonl").unlink()
    (folder / "partition.json").unlink()
    run = read_run(folder)
    assert run.rounds == ()
    assert run.partition is None


def test_a_comparison_names_its_runs_by_folder(tmp_path: Path) -> None:
    """In the order of comparison.json."""
    runs = read_folder(write_comparison(tmp_path / "all", ("secagg", "sliced"), rounds=2))
    assert [run.name for run in runs] == ["secagg", "sliced"]


def test_runs_that_differ_in_the_seed_alone_become_their_mean(tmp_path: Path) -> None:
    """Round by round, as far as all of them got; the same seed again is another experiment."""
    folders = [write_run(tmp_path / f"s{seed}", rounds=3, seed=seed, failed=(1,)[:seed]) for seed in (0, 1)]
    metrics = folders[0] / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))  # It reached its target.
    alone = [read_run(folder) for folder in folders]
    (mean,) = read_runs(folders)
    assert mean.name == "sliced" and mean.config["seed"] == [0, 1] and len(mean.rounds) == 2
    accuracies = [[run.rounds[n].accuracy or 0.0 for run in alone] for n in range(2)]
    assert [line.accuracy for line in mean.rounds] == pytest.approx([sum(pair) / 2 for pair in accuracies])
    assert mean.spread == pytest.approx([abs(a - b) / 2**0.5 for a, b in accuracies])
    assert mean.rounds[0].dropped["UPLOAD"] == sum(run.rounds[0].dropped["UPLOAD"] for run in alone) / 2
    assert not mean.rounds[0].failed  # With one of the seeds it worked.
    twice = [folders[0], write_run(tmp_path / "again", rounds=3, seed=0)]
    assert [run.name for run in read_runs(twice)] == ["sliced (s0)", "sliced (again)"]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    """The error names the option and the remedy."""
    with pytest.raises(InvalidInput, match="must be a folder written by `sparsesecagg train`") as caught:
        read_folder(tmp_path)
    assert caught.value.option == "run_dir"


@pytest.mark.parametrize("name", ["../other", "", "..", "a/b", "a\\b", 7])
def test_a_comparison_cannot_point_outside_itself(tmp_path: Path, name: object) -> None:
    """A run is a sub-folder, never a path."""
    folder = write_comparison(tmp_path / "all", ("secagg",), rounds=1)
    (folder / "comparison.json").write_text(json.dumps({"runs": [name]}))
    with pytest.raises(InvalidInput, match="not the name of a sub-folder"):
        read_folder(folder)


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("config.json", "[]", "not one JSON object"),
        ("config.json", "{", "unreadable config.json"),
        ("partition.json", "{}", "without classes and counts"),
        ("partition.json", '{"classes": ["a"], "counts": [[1, 2]]}', "one number per class"),
        ("metrics.jsonl", "nonsense\n", "bad line 1"),
        ("metrics.jsonl", '{"round": 1}\n{"round": "x"}\n', "bad line 2"),
        ("metrics.jsonl", '{"round": 1, "status": "odd"}\n', "bad line 1"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, file: str, content: str, problem: str) -> None:
    """The error says which file, and which line of the metrics."""
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / file).write_text(content)
    with pytest.raises(InvalidInput, match=problem):
        read_run(folder)


def test_an_empty_comparison_is_refused(tmp_path: Path) -> None:
    """There would be nothing to report."""
    (tmp_path / "comparison.json").write_text('{"runs": []}')
    with pytest.raises(InvalidInput, match="lists no runs"):
        read_folder(tmp_path)
