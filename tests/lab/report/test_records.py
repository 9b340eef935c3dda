"""Reading run folders: tolerant where aggregators differ, strict where a file is no run."""

import json
from pathlib import Path

import msgspec
import pytest

from lab.report.synthetic import write_comparison, write_run
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.report import read_run, read_run_set


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
    assert null.contributors.mean is None
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
    run_set = read_run_set(write_comparison(tmp_path / "all", ("secagg", "sliced"), rounds=2))
    assert run_set.is_comparison
    assert [run.name for run in run_set.runs] == ["secagg", "sliced"]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    """The error names the option and the remedy."""
    with pytest.raises(InvalidInput, match="must be a folder written by `sparsesecagg train`") as caught:
        read_run_set(tmp_path)
    assert caught.value.option == "run_dir"


@pytest.mark.parametrize("name", ["../other", "", "..", "a/b", "a\\b", 7])
def test_a_comparison_cannot_point_outside_itself(tmp_path: Path, name: object) -> None:
    """A run is a sub-folder, never a path."""
    folder = write_comparison(tmp_path / "all", ("secagg",), rounds=1)
    (folder / "comparison.json").write_text(json.dumps({"runs": [name]}))
    with pytest.raises(InvalidInput, match="must be the name of a sub-folder"):
        read_run_set(folder)


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
        read_run_set(tmp_path)
