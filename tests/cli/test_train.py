"""`sparsesecagg train` on the command line: keys, exit codes, and nothing written on bad input."""

import json
from pathlib import Path

import pytest

from lab.learning.support import write_idx_files
from sparsesecagg.cli import main

SMALL = [
    "train", "--clients", "10", "--rounds", "2", "--hidden", "8", "--alpha", "0.5", "--dropout", "0.1", "--samples",
    "300", "--workers", "1",
]  # fmt: skip
KEYS = {
    "accuracy", "rounds", "reached_target_at", "upload_bytes_per_client_round", "total_upload_bytes", "run_dir",
    "report",
}  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *arguments):
    """Run the program; return exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_a_run_prints_one_json_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The keys of the contract and nothing else; the folder and the report exist."""
    code, out, _ = run(capsys, *SMALL, "--out", tmp_path / "run", "--json", "--tensorboard")
    result = json.loads(out)
    assert code == 0 and set(result) == KEYS and out.count("\n") == 1
    assert result["rounds"] == 2 and result["reached_target_at"] is None and 0 < result["accuracy"] < 1
    assert (tmp_path / "run" / "report.html").is_file() and result["report"].endswith("report.html")
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_a_run_ends_with_a_table_and_the_path_of_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What a person sees."""
    code, out, err = run(capsys, *SMALL, "--out", tmp_path / "run", "--aggregator", "pairwise")
    assert code == 0 and "pairwise" in out and "report.html" in out
    assert "reveals" in err and "round 2/2" in err


def test_a_comparison_has_the_same_keys_per_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And on top those of the first; the report is the comparison's."""
    code, out, _ = run(capsys, *SMALL, "--out", tmp_path / "all", "--compare", "committee:8,plain", "--json")
    result = json.loads(out)
    assert code == 0 and set(result) == KEYS | {"runs"} and set(result["runs"]) == {"committee-8", "plain"}
    assert all(set(one) == KEYS for one in result["runs"].values())
    assert result["accuracy"] == result["runs"]["committee-8"]["accuracy"]
    assert result["run_dir"] == str(tmp_path / "all") and (tmp_path / "all" / "report.html").is_file()


def test_a_run_is_resumed_with_its_own_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Named again or left out; more rounds are welcome."""
    run(capsys, *SMALL, "--out", tmp_path / "run", "--json")
    code, out, _ = run(capsys, "train", "--resume", tmp_path / "run", "--rounds", "3", "--json", "--workers", "1")
    assert code == 0 and json.loads(out)["rounds"] == 3
    code, out, _ = run(capsys, *SMALL[:3], "--resume", tmp_path / "run", "--json")
    assert code == 0 and json.loads(out)["rounds"] == 3


def test_authenticated_rounds_are_recorded_reported_and_resumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """CONFIRM stands in the metrics, the CSV and the report; a resumed run ends where an undisturbed one does."""
    options = [*SMALL, "--authenticated", "--drop-at", "UPLOAD,CONFIRM", "--json"]
    assert run(capsys, *options, "--out", tmp_path / "run")[0] == 0
    code, out, _ = run(capsys, "train", "--resume", tmp_path / "run", "--rounds", "3", "--workers", "1", "--json")
    assert code == 0 and json.loads(out)["rounds"] == 3
    assert run(capsys, *options, "--rounds", "3", "--out", tmp_path / "whole")[0] == 0
    assert (tmp_path / "run" / "model.npz").read_bytes() == (tmp_path / "whole" / "model.npz").read_bytes()

    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    good = [line for line in lines if line["status"] == "ok"]
    assert good and all(line["sent_bytes"]["CONFIRM"] > 0 < line["client_seconds"]["CONFIRM"] for line in good)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["effective"]["authenticated"] is True
    assert "sent_bytes.CONFIRM" in (tmp_path / "run" / "metrics.csv").read_text()
    assert "CONFIRM" in (tmp_path / "run" / "report.html").read_text()
    code, _, err = run(capsys, *SMALL, "--out", tmp_path / "plain", "--json")
    code, _, err = run(capsys, "train", "--resume", tmp_path / "plain", "--authenticated")
    assert code == 2 and "begun with authenticated False, not True" in err


def test_many_failing_rounds_are_foretold(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """More than two thirds of ten users must stay, and a dropout of 0.25 leaves seven on average."""
    _, _, err = run(capsys, *SMALL, "--out", tmp_path / "run", "--authenticated", "--dropout", "0.25", "--json")
    assert "about 34 % of rounds will fail, with fewer than 7 users left: lower --dropout" in err


def test_many_thin_committees_are_foretold(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Three users, of whom all three are demanded."""
    options = ["--committee-size", "3", "--min-survivors", "3", "--json"]
    _, out, err = run(capsys, *SMALL, "--out", tmp_path / "run", *options)
    assert "% of committees will lose their slices in a round, with fewer than 3 survivors: raise" in err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert json.loads(out)["rounds"] == 2 and any(line["committees_opened"] < 3 for line in lines)


def test_alpha_that_is_not_used_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Three committees send a third or two thirds."""
    _, _, err = run(capsys, *SMALL, "--out", tmp_path / "run", "--committee-size", "3", "--json")
    assert "alpha is 0.667 instead of 0.5" in err
    effective = json.loads((tmp_path / "run" / "config.json").read_text())["effective"]
    assert effective["alpha_asked"] == 0.5 and effective["alpha"] == pytest.approx(2 / 3)


def test_a_resumed_run_finds_its_data_where_it_was(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The data folder need not be named again."""
    write_idx_files(tmp_path / "data" / "mnist")
    options = ["--dataset", "mnist", "--model", "softmax", "--clients", "3", "--alpha", "1", "--dropout", "0"]
    given = ["--data-dir", tmp_path / "data", "--rounds", "1", "--workers", "1", "--json"]
    assert run(capsys, "train", *options, *given, "--out", tmp_path / "run")[0] == 0
    code, out, _ = run(capsys, "train", "--resume", tmp_path / "run", "--rounds", "2", "--workers", "1", "--json")
    assert code == 0 and json.loads(out)["rounds"] == 2


def contents(folder):
    """Return every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dataset", "minst"], "--dataset must be one of digits, mnist"),
        (["--aggregator", "secag"], "--aggregator must be one of plain"),
        (["--compare", "plain,secag"], "--compare must name some of plain"),
        (["--compare", "plain", "--aggregator", "plain"], "--compare and --aggregator"),
        (["--model", "cnn"], "--model must be one of softmax"),
        (["--model", "small-cnn"], "--model small-cnn takes samples of shape"),
        (["--partition", "even"], "--partition must be one of iid"),
        (["--partition", "shards", "--shards", "5000"], "--shards must be 10"),
        (["--clients", "5000"], "--clients must be 1 to 300"),
        (["--clients", "2"], "--clients must be at least 3"),
        (["--alpha", "0.0001"], "--alpha of 0.0001 sends nothing"),
        (["--alpha", "0.1"], "--alpha of 0.1 gives committees of"),
        (["--dropout", "1"], "--dropout must be in"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--modulus-bits", "3"], "--modulus-bits must be from 4 to 32"),
        (["--drop-at", "LUNCH"], "--drop-at must be one of ADVERTISE_KEYS"),
        (["--committee-size", "2"], "--committee-size must be from 3 to 10"),
        (["--committee-size", "5", "--pod-size", "4"], "--pod-size must be from 5, the users of a committee, to 10"),
        (["--committee-size", "5", "--aggregator", "secagg"], "--committee-size must not be given with full"),
        (["--min-survivors", "6"], "--min-survivors must be from 1 to 5"),
        (["--downlink", "up"], "--downlink must be one of steps, model"),
        (["--downlink-bits", "3"], "--downlink-bits must be one of 2, 4, 8"),
        (["--target-accuracy", "95"], "--target-accuracy must be in"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--samples", "0"], "--samples must be 1 to"),
        (["--seed", "-1"], "--seed"),
        (["--authenticated", "--dropout", "0.4"], "--dropout of 0.4 leaves 5.04 of 10 users on average"),
        (["--authenticated", "--aggregator", "plain"], "--authenticated can't be had with plain"),
        (["--authenticated", "--compare", "committee,plain"], "--authenticated can't be had with plain"),
        (["--dataset", "mnist", "--data-dir", "nowhere"], "--data-dir nowhere is not a folder: put train-images"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options, said: str
) -> None:
    """Exit code 2, the option by name, what is allowed."""
    code, out, err = run(capsys, *SMALL, "--out", tmp_path / "run", *options)
    assert code == 2 and out == ""
    assert said in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_another_configuration_can_not_resume(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 2, and the folder is as it was."""
    run(capsys, *SMALL, "--out", tmp_path / "run", "--json")
    before = contents(tmp_path)
    for options, said in (
        (["--alpha", "0.4"], "begun with alpha 0.5, not 0.4"),
        (["--aggregator", "plain"], "begun with aggregator committee"),
        (["--compare", "plain,secagg"], "holds no comparison"),
        (["--out", str(tmp_path / "other")], "--out and --resume"),
    ):
        code, out, err = run(capsys, "train", "--resume", tmp_path / "run", *options)
        assert code == 2 and out == "" and said in err and contents(tmp_path) == before


@pytest.mark.parametrize("what", ["missing", "empty"])
def test_a_folder_that_is_no_run_can_not_be_resumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, what: str
) -> None:
    """Exit code 2, one sentence."""
    folder = tmp_path / "run"
    if what == "empty":
        folder.mkdir()
    code, _, err = run(capsys, "train", "--resume", folder)
    assert code == 2 and "--resume" in err and "is not a run folder" in err


def test_a_folder_in_use_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 2, and what to do instead."""
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = run(capsys, *SMALL, "--out", tmp_path)
    assert (
        code == 2 and "--out" in err and "is not empty" in err and [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    )


def test_a_run_without_a_single_good_round_is_a_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 1 with stage and reason; the record is there all the same."""
    code, out, err = run(capsys, *SMALL, "--out", tmp_path / "run", "--threshold", "10", "--dropout", "0.4", "--json")
    assert code == 1 and json.loads(out)["rounds"] == 2
    assert "none of 2 rounds" in err and "UPLOAD" in err
