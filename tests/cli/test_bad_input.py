"""Bad input, over all commands: one sentence that names what to change, exit code 2, no traceback, nothing printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
import typer

from cli.commands import run, run_json
from sparsesecagg.cli import errors
from sparsesecagg.lab.cli import main

PREFIX = {
    "simulate": "simulate --clients 5 --dim 50 --alpha 1",
    "audit": "audit --clients 5 --dim 50 --alpha 1 --rounds 1 --workers 1",
    "plan": "plan --clients 100 --dim 1000 --dropout 0.1 --colluding 0.1 --min-anonymity 5",
    "train": "train --clients 5 --rounds 1 --alpha 1 --workers 1 --out {t}/new",
    "reproduce": "reproduce table1 --quick --out {t}/new",
    "enrol": "roster enrol --key {t}/a.key --run r --run-key {t}/new.key --entry {t}/new.json",
    "build": "roster build --run r --roster {t}/new.json",
    "check": "roster check --roster {t}/roster.json",
    "seal": "roster seal --roster {t}/roster.json",
    "": "",
}
"""Good options of each command; a bad one comes after them. {t} is a folder with the files that `folder` makes."""

BAD = """
simulate  --dim 99999999999              --dim must be at most
simulate  --dim 9999999999999999999999   --dim must be
simulate  --dim 0                        --dim must be
simulate  --dim ten                      --dim must be a whole number, got 'ten'
simulate  --dim=                         --dim must be a whole number, got ''
simulate  --dim                          --dim requires
simulate  --clients 2                    --clients must be
simulate  --clients 1.5                  --clients must be a whole number, got '1.5'
simulate  --clients 99999999999          --clients must be
simulate  --authenticated --clients 99999999999  --clients must be
simulate  --alpha 2                      --alpha must
simulate  --alpha nan                    --alpha must
simulate  --alpha half                   --alpha must be a number, got 'half'
simulate  --dropout -0.1                 --dropout must
simulate  --dropout nan                  --dropout must
simulate  --pattern star                 --pattern must be one of
simulate  --pattern=                     --pattern must be one of
simulate  --modulus-bits 3               --modulus-bits must be from 4 to 32
simulate  --neighbours 0                 --neighbours must
simulate  --threshold 99                 --threshold must
simulate  --group-size 2                 --group-size must be from 3 to
simulate  --group-size 6                 --group-size must be from 3 to
simulate  --alpha 0.01                   --alpha of 0.01 sends 1 of every
simulate  --authenticated --threshold 3  --threshold must be from 4 to 5 with a roster
simulate  --pod-size 5                   --pod-size is not an option
simulate  --clip inf                     --clip must
simulate  --rounds 0                     --rounds must be from 1 to
simulate  --drop-at LUNCH                --drop-at must be one of
simulate  --seed -1                      --seed must be at least 0, got -1
simulate  --seeds 3                      --seeds is not an option: did you mean
simulate  --colour red                   --colour is not an option
simulate  --json=yes                     --json
simulate  surplus                        Got unexpected extra argument
audit     --dim 99999999999              --dim must be at most
audit     --colluding nan                --colluding must
audit     --colluding 1                  --colluding must
audit     --rounds -1                    --rounds must be at least 1
audit     --workers -1                   --workers must be at least 0, got -1
audit     --max-weight -1                --max-weight must
audit     --plot {t}/picture.gif         --plot must end in .png
audit     --plot {t}/none/picture.png    --plot must be in an existing directory
audit     --plot {t}/folder.png          --plot must name a file
plan      --clients 99999999999          --clients must be
plan      --dropout nan                  --dropout must be
plan      --colluding 0.5                --colluding must be
plan      --min-anonymity 101            --min-anonymity must be
plan      --failure-log2 -inf            --failure-log2 must be
plan      --levels 99999999999999999999  --levels must be
plan      --alpha nan                    --alpha must
plan      --group-size 101               --group-size must be from 3 to
plan      --server evil                  --server must be one of malicious, semi-honest
plan      --seed 1                       --seed is not an option
train     --dataset cats                 --dataset must be one of
train     --dataset mnist --data-dir {t}/file  --data-dir
train     --partition none               --partition must be one of
train     --clients 999999               --clients must be
train     --rounds 0                     --rounds must be at least 1
train     --aggregator best              --aggregator must be one of
train     --compare=                     --compare must name some of
train     --compare sliced:33            --modulus-bits must be
train     --compare plain --aggregator plain  --compare
train     --dropout nan                  --dropout must
train     --target-accuracy 2            --target-accuracy must
train     --first-clip nan               --first-clip must
train     --hidden 99999999999999999999  --hidden must be from 1 to
train     --batch 0                      --batch must
train     --lr inf                       --lr must
train     --momentum nan                 --momentum must
train     --samples -5                   --samples must
train     --partition dirichlet --concentration nan  --concentration must
train     --latency-ms nan               --latency-ms must
train     --seed -1                      --seed must be at least 0
train     --workers 0                    --workers must be at least 1
train     --out {t}/file                 --out
train     --out {t}/file/below           --out must name a place that can be used, got
train     --out {t}/full                 --out
train     --resume {t}/none              --out and --resume exclude each other
reproduce --minutes nan                  --minutes must be at least 0, got nan
reproduce --out {t}/file                 --out must name a place that can be used, got
enrol     --run=                         --run must not be empty
enrol     --key {t}/none                 --key must name
enrol     --key {t}/file                 --key must name
enrol     --run-key {t}/none/key         --run-key must name
enrol     --run-key {t}/a.key            --run-key must name a new file
enrol     --entry {t}/none/entry         --entry must name
enrol     --entry {t}                    --entry must name
build     {t}/a.json                     ENTRIES must be those of at least 3 users, got 1
build     {t}/a.json {t}/b.json {t}/file  ENTRIES must be
build     {t}/a.json {t}/b.json {t}      ENTRIES must be
build     --roster {t}/none/r {t}/a.json {t}/b.json {t}/c.json  --roster must name a place that can be used, got
check     --roster {t}/none              --roster must
check     --roster {t}                   --roster must
build     --group-size 4 {t}/a.json {t}/b.json {t}/c.json  --group-size must be from 3 to the 3
build     --colluding 0.5 {t}/a.json {t}/b.json {t}/c.json  --colluding must be
seal      --value 00                     --roster must have no seed yet
check     --value 00                     --value must not be given for a roster that names no beacon
check     --trusted {t}/none             --trusted must
check     --trusted {t}/a.key            --trusted must
          plan                           --clients is required
          reproduce                      NAME is required
          reproduce fig7                 NAME must be one of
          roster build --run r --roster {t}/r  ENTRIES is required
          roster nothing                 No such command 'nothing'
          train --resume {t}/none        --resume
          train --resume {t}/full        --resume
          nothing                        No such command 'nothing'
          --nothing                      --nothing is not an option
"""


def cases() -> list[tuple[str, str]]:
    """Return (command line, what the sentence begins with)."""
    found = []
    for row in BAD.strip("\n").splitlines():
        command, rest = row[:10].strip(), row[10:]
        options, sentence = rest.split("  ", 1)
        found.append((f"{PREFIX[command]} {options}".strip(), sentence.strip()))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files to point at: a file, full folders, and three users enrolled in the run r."""
    here = tmp_path_factory.mktemp("input")
    (here / "file").write_text("neither a key nor a roster")
    (here / "full").mkdir()
    (here / "full" / "file").touch()
    (here / "folder.png").mkdir()
    for user in "abc":
        quietly("roster", "identity", "--key", str(here / f"{user}.key"))
        files = ["--run-key", str(here / f"{user}.run"), "--entry", str(here / f"{user}.json")]
        quietly("roster", "enrol", "--key", str(here / f"{user}.key"), "--run", "r", *files)
    entries = [str(here / f"{user}.json") for user in "abc"]
    quietly("roster", "build", "--run", "r", "--roster", str(here / "roster.json"), *entries)
    return here


def quietly(*words: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert not end.value.code


@pytest.mark.parametrize(("line", "sentence"), cases())
def test_bad_input_gets_one_sentence_and_code_2(
    line: str, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *(word.format(t=folder) for word in line.split()))
    assert (code, out) == (2, ""), err
    assert err.startswith(f"sparsesecagg: {sentence}"), err
    assert err.count("\n") == 1 and err.endswith((".\n", "?\n"))
    assert not list(folder.glob("new*")), "bad input leaves nothing behind"


def program(problem: BaseException) -> typer.Typer:
    """A program with the options --dim and --out that ends with a problem."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.command()
    def work(dim: int = 1, out: str = "") -> NoReturn:
        raise problem

    return app


def ending(capsys: pytest.CaptureFixture[str], problem: BaseException, *words: str) -> tuple[int | str | None, str]:
    """Return exit code and standard error."""
    with pytest.raises(SystemExit) as end:
        errors.run(program(problem), words)
    return end.value.code, capsys.readouterr().err


def test_too_little_memory_names_the_option_that_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = ending(capsys, MemoryError("no 9 GB"), "--dim", "9")
    assert code == 2
    assert err == "sparsesecagg: --dim must be lower, there is not enough memory: no 9 GB.\n"


@pytest.mark.parametrize("words", [["--out", "there"], ["--out=there"], ["--dim", "3", "--out", "there/"]])
def test_a_folder_that_can_not_be_written_names_its_option(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = ending(capsys, PermissionError(13, "Permission denied", "there/metrics.csv"), *words)
    assert code == 2
    assert err == "sparsesecagg: --out must name a place that can be used, got there/metrics.csv: Permission denied.\n"


def test_a_full_disk_is_a_failure_and_not_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = ending(capsys, OSError(28, "No space left on device", "elsewhere"), "--out", "there")
    assert (code, err) == (1, "sparsesecagg: elsewhere can't be used: No space left on device.\n")


@pytest.mark.parametrize(
    "bug", [TypeError("a bug"), FileNotFoundError(2, "No such file", "elsewhere"), OSError(9, "x")]
)
def test_a_bug_is_seen_as_it_is(bug: Exception) -> None:
    with pytest.raises(type(bug)):
        errors.run(program(bug), [])


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), typer.Abort()])
def test_an_interrupt_ends_with_130(problem: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(capsys, problem) == (
        130,
        "sparsesecagg: interrupted, and nothing was kept: the same command starts again.\n",
    )


@pytest.mark.skipif(os.name == "nt", reason="sends signals to a group of processes")
@pytest.mark.parametrize("options", [[], ["--compare", "sliced,plain"]], ids=["one run", "a comparison"])
def test_ctrl_c_says_how_to_resume_and_resuming_works(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal sends Ctrl-C to every process of the group, workers too."""
    pytest.importorskip("sklearn")
    folder = tmp_path / "run"
    # Whoever starts the tests in the background has Ctrl-C ignored by all their children.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from sparsesecagg.lab.cli import main; main()"
    words = ["train", "--clients", "5", "--alpha", "1", "--rounds", "100000", "--workers", "2", "--out", str(folder)]
    with subprocess.Popen(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", code, *words, *options],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        told = ""
        while "round 1/" not in told:
            told += process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        told += process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in told
    assert told.endswith(f"sparsesecagg: interrupted: sparsesecagg train --resume {folder} resumes the run.\n")
    done = max(len(path.read_text().splitlines()) for path in folder.rglob("metrics.jsonl"))
    resumed = run_json(capsys, "train", "--resume", str(folder), "--rounds", str(done + 1), "--workers", "1")
    assert resumed["run_dir"] == str(folder)
    assert {len(path.read_text().splitlines()) for path in folder.rglob("metrics.jsonl")} == {done + 1}
