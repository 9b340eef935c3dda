"""`sparsesecagg train` on the command line: keys, exit codes, and nothing written on bad input."""

import json
from pathlib import Path

import pytest

from lab.learning.support import write_idx_files
from sparsesecagg.lab.cli import main

SMALL = [
    "train", "--clients", "10", "--rounds", "2", "--hidden", "8", "--alpha", "0.5", "--dropout", "0.1", "--samples",
    "300", "--workers", "1",
]  # fmt: skip
KEYS = {
    "accuracy", "rounds", "reached_target_at", "upload_bytes_per_client_round", "total_upload_bytes", "run_dir",
    "report", "dp",
}  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *arguments):
    """Run the program; return exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_a_run_prints_one_json_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The keys of the contract and nothing else; the folder and the report exist."""
    code, out, _ = run(capsys, *SMALL, "--out", tmp_path / "run", "--json")
    result = json.loads(out)
    assert code == 0 and set(result) == KEYS and out.count("\n") == 1
    assert result["rounds"] == 2 and result["reached_target_at"] is None and 0 < result["accuracy"] < 1
    assert (tmp_path / "run" / "report.html").is_file() and result["report"].endswith("report.html")
    _, out, _ = run(capsys, "report", tmp_path / "run", "--json")
    (again,) = json.loads(out)["runs"]
    assert again["upload_bytes_per_client_round"] == pytest.approx(result["upload_bytes_per_client_round"])


def test_a_run_ends_with_a_table_and_the_path_of_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What a person sees."""
    code, out, err = run(capsys, *SMALL, "--out", tmp_path / "run", "--aggregator", "pairwise")
    assert code == 0 and "pairwise" in out and "report.html" in out
    assert "reveals" in err and "round 2/2" in err


def test_a_comparison_has_the_same_keys_per_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And on top those of the first; the report is the comparison's."""
    code, out, _ = run(capsys, *SMALL, "--out", tmp_path / "all", "--compare", "sliced:0.2:8,plain", "--json")
    result = json.loads(out)
    assert code == 0 and set(result) == KEYS | {"runs"} and set(result["runs"]) == {"sliced-0.2-8", "plain"}
    assert all(set(one) == KEYS for one in result["runs"].values())
    assert result["accuracy"] == result["runs"]["sliced-0.2-8"]["accuracy"]
    assert result["run_dir"] == str(tmp_path / "all") and (tmp_path / "all" / "report.html").is_file()


def test_a_run_is_resumed_with_its_own_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Named again or left out; more rounds are welcome."""
    run(capsys, *SMALL, "--out", tmp_path / "run", "--json")
    code, out, _ = run(capsys, "train", "--resume", tmp_path / "run", "--rounds", "3", "--json", "--workers", "1")
    assert code == 0 and json.loads(out)["rounds"] == 3
    code, out, _ = run(capsys, *SMALL[:3], "--resume", tmp_path / "run", "--json")
    assert code == 0 and json.loads(out)["rounds"] == 3
    for given in (["--gain", "2"], ["--aggregator", "full", "--weighting", "samples"]):
        assert run(capsys, *SMALL, *given, "--out", tmp_path / given[0])[0] == 0
        code, out, err = run(capsys, "train", "--resume", tmp_path / given[0], *given, "--json")
        assert code == 0 and json.loads(out)["rounds"] == 2, err


def test_authenticated_rounds_are_recorded_and_resumed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A resumed run ends where an undisturbed one does; the promise against a malicious server is on record."""
    options = [*SMALL, "--authenticated", "--drop-at", "UPLOAD,UNMASK", "--json"]
    assert run(capsys, *options, "--out", tmp_path / "run")[0] == 0
    code, out, _ = run(capsys, "train", "--resume", tmp_path / "run", "--rounds", "3", "--workers", "1", "--json")
    assert code == 0 and json.loads(out)["rounds"] == 3
    assert run(capsys, *options, "--rounds", "3", "--out", tmp_path / "whole")[0] == 0
    assert (tmp_path / "run" / "model.npz").read_bytes() == (tmp_path / "whole" / "model.npz").read_bytes()
    effective = json.loads((tmp_path / "run" / "config.json").read_text())["effective"]
    assert effective["authenticated"] is True and effective["anonymity"] == 5
    run(capsys, *SMALL, "--out", tmp_path / "plain", "--json")
    code, _, err = run(capsys, "train", "--resume", tmp_path / "plain", "--authenticated")
    assert code == 2 and "begun with authenticated False, not True" in err


def test_seeds_give_mean_and_deviation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In the JSON, in the table, and the same numbers in LaTeX from `report`; all seeds resume together."""
    given = ["--seeds", "3,5", "--compare", "sliced:0.2:8,sliced:0.5:8,plain"]
    code, out, _ = run(capsys, *SMALL, "--out", tmp_path / "all", *given, "--json")
    result = json.loads(out)
    assert code == 0 and set(result) == KEYS | {"runs", "seeds", "accuracy_deviation"}
    plain = result["runs"]["plain"]
    both = [plain["seeds"][seed]["accuracy"] for seed in ("3", "5")]
    assert plain["accuracy"] == pytest.approx(sum(both) / 2)
    assert plain["accuracy_deviation"] == pytest.approx(abs(both[0] - both[1]) / 2**0.5)
    code, out, _ = run(capsys, "train", "--resume", tmp_path / "all", "--rounds", "3", "--workers", "1", "--json")
    found = json.loads(out)["runs"]
    assert code == 0 and {each["rounds"] for each in found.values()} == {3}
    _, table, _ = run(capsys, "report", tmp_path / "all")
    _, latex, _ = run(capsys, "report", tmp_path / "all", "--table", "latex")
    for name, each in found.items():
        mean, deviation = 100 * each["accuracy"], 100 * each["accuracy_deviation"]
        assert f"{mean:.1f} ± {deviation:.1f} %" in next(line for line in table.splitlines() if line.startswith(name))
        assert rf"{name} & {mean:.1f} $\pm$ {deviation:.1f} \%" in latex


def test_a_recorded_configuration_starts_the_same_run_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """config.json is read back; a list in it makes one run for each value."""
    run(capsys, *SMALL, "--out", tmp_path / "first", "--seed", "4", "--json")
    again = ["train", "--config", tmp_path / "first" / "config.json", "--workers", "1", "--json"]
    assert run(capsys, *again, "--out", tmp_path / "second")[0] == 0
    models = [(tmp_path / name / "model.npz").read_bytes() for name in ("first", "second")]
    assert models[0] == models[1]
    (tmp_path / "sweep.toml").write_text("clients = 10\nrounds = 1\nsamples = 300\nlr = [0.05, 0.1]\nseed = [0, 1]\n")
    code, out, _ = run(
        capsys, "train", "--config", tmp_path / "sweep.toml", "--workers", "1", "--out", tmp_path / "all", "--json"
    )
    assert code == 0 and set(json.loads(out)["runs"]) == {"sliced-lr-0.05", "sliced-lr-0.1"}
    again = ["train", "--config", tmp_path / "sweep.toml", "--workers", "1", "--json", "--resume", tmp_path / "all"]
    code, out, err = run(capsys, *again)
    assert code == 0 and set(json.loads(out)["runs"]) == {"sliced-lr-0.05", "sliced-lr-0.1"}, err


def test_options_come_from_a_file_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Those of the command line win."""
    (tmp_path / "run.toml").write_text(
        "clients = 10\nrounds = 7\nhidden = 8\nalpha = 0.5\ngroup-size = 5\nsamples = 300\n"
    )
    options = ["train", "--config", tmp_path / "run.toml", "--rounds", "1", "--workers", "1", "--json"]
    code, out, _ = run(capsys, *options, "--out", tmp_path / "run")
    assert code == 0 and json.loads(out)["rounds"] == 1
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["clients"], config["group_size"], config["effective"]["groups"]) == (10, 5, 2)


def test_many_failing_rounds_are_foretold(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All of ten users must stay, and a tenth drops out."""
    _, _, err = run(capsys, *SMALL, "--out", tmp_path / "run", "--threshold", "9", "--dropout", "0.1", "--json")
    assert "about 30% of the rounds fail, with fewer than 9 of 10 users left: lower --dropout" in err


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


def test_another_configuration_can_not_resume(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 2, and the folder is as it was."""
    run(capsys, *SMALL, "--out", tmp_path / "run", "--json")
    before = contents(tmp_path)
    for options, said in (
        (["--alpha", "0.4"], "begun with alpha 0.5, not 0.4"),
        (["--aggregator", "plain"], "begun with aggregator sliced"),
        (["--compare", "plain,secagg"], "--compare must not be given with --resume"),
        (["--out", str(tmp_path / "other")], "--out must not be given with --resume"),
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


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("--shards 20", "--shards 20 is not used without --partition shards"),
        ("--gain 2 --compare secagg,plain", "--gain 2.0 is not used without --aggregator sliced"),
        ("--alpha 0.1 --pattern full", "--alpha 0.1 is not used without --aggregator pairwise or --aggregator sliced"),
        ("--downlink-bits 8 --downlink model", "--downlink-bits 8 is not used without --downlink steps"),
        ("--threshold 3 --aggregator plain", "--threshold 3 is not used without --aggregator secagg or --aggregator"),
        ("--group-size 3 --aggregator plain", "--group-size 3 is not used without --aggregator sliced"),
        ("--neighbours 2 --aggregator secagg", "--neighbours 2 is not used without --aggregator secagg-plus or"),
        ("--modulus-bits 8 --aggregator plain", "--modulus-bits 8 is not used without"),
        ("--colluding 0.1 --aggregator plain", "--colluding 0.1 is not used without"),
        ("--first-clip 1 --aggregator plain", "--first-clip 1.0 is not used without"),
        ("--normalisation expected --aggregator plain", "--normalisation expected is not used without"),
        ("--keys-arrive --aggregator plain", "--keys-arrive is not used without --aggregator secagg or"),
        ("--attack reverse", "--attack reverse is not used without --malicious"),
        ("--shards 20 --partition shards --gain 2 --compare sliced,plain", None),
        ("--attack sign-flip --malicious 0.2 --threshold 4 --compare secagg,plain", None),
    ],
)
def test_an_option_that_is_not_used_is_said_unless_one_run_uses_it(
    given: str, sentence: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = "train --clients 5 --rounds 1 --samples 50 --dropout 0 --workers 1 --json --out".split()
    said = run(capsys, *arguments, str(tmp_path / "run"), *given.split())[2]
    assert sentence in " ".join(said.split()) if sentence else "is not used" not in said
