"""Bad input, over all commands and the Python entry points: one sentence that names what to change and what was got.

Commands end with exit code 2, no traceback, and nothing on standard output; Python raises `InvalidInput`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import typer

from cli.commands import run, run_json
from lab.report.synthetic import write_run
from sparsesecagg import Client, Parameters, RoundOptions, Server, Stage, secure_sum
from sparsesecagg.cli import errors
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.cli import main
from sparsesecagg.lab.learning import Dataset, TrainingConfig, train_federated
from sparsesecagg.lab.report import write_report
from sparsesecagg.planning.noise import DifferentialPrivacy
from sparsesecagg.planning.planner import Goal, plan_round

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
    "report": "report {t}/run --out {t}/new.html",
    "attack": "attack withheld-tags --clients 12",
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
simulate  --json=yes                     --json does not take a value
simulate  surplus                        Got unexpected extra argument
audit     --dim 99999999999              --dim must be at most
audit     --colluding nan                --colluding must
audit     --colluding 1                  --colluding must
audit     --rounds -1                    --rounds must be at least 1
audit     --workers -1                   --workers must be at least 0, got -1
audit     --max-weight -1                --max-weight must
plan      --clients 99999999999          --clients must be
plan      --dropout nan                  --dropout must be
plan      --colluding 0.5                --colluding must be
plan      --min-anonymity 101            --min-anonymity must be
plan      --failure-log2 -inf            --failure-log2 must be
plan      --alpha nan                    --alpha must
plan      --group-size 101               --group-size must be from 3 to
plan      --server evil                  --server must be one of malicious, semi-honest
plan      --seed 1                       --seed is not an option
train     --dataset cats                 --dataset must be one of
train     --dataset mnist --data-dir {t}/file  --data-dir must hold the data, got
train     --partition none               --partition must be one of
train     --clients 999999               --clients must be
train     --rounds 0                     --rounds must be at least 1
train     --aggregator best              --aggregator must be one of
train     --compare=                     --compare must name some of
train     --compare sliced:33            --compare must name some of
train     --compare plain --aggregator plain  --compare
train     --dropout nan                  --dropout must
train     --target-accuracy 2            --target-accuracy must
train     --first-clip nan               --first-clip must
train     --hidden 99999999999999999999  --hidden must be from 1 to
train     --batch 0                      --batch must
train     --lr inf                       --lr must
train     --momentum nan                 --momentum must
train     --samples -5                   --samples must
train     --samples 4                    --samples must be at least 5, one for each of the clients, got 4
train     --samples 9999                 --samples must be 1 to
train     --clients 2000                 --clients must be at most
train     --partition dirichlet --concentration nan  --concentration must
train     --latency-ms nan               --latency-ms must
train     --latency-ms 1e308             --latency-ms must be from 0 to 1e9, got 1e+308
train     --bandwidth-mbit 1e-300        --bandwidth-mbit must be at least 1e-6, got 1e-300
train     --first-clip 1e300             --first-clip must be from 1e-30 to 1e30, got 1e+300
train     --dp-epsilon 8 --dp-clip 1e31  --dp-clip must be from 1e-30 to 1e30, got 1e+31
train     --dp-epsilon 8 --dp-clip 1e-31  --dp-clip must be from 1e-30 to 1e30, got 1e-31
train     --dropout 1                    --dropout must be in [0, 0.5), got 1
train     --colluding 0.5                --colluding must be in [0, 0.5), got 0.5
train     --seed -1                      --seed must be at least 0
train     --workers 0                    --workers must be at least 1
train     --out {t}/file                 --out must name a new folder, got the file
train     --out {t}/file/below           --out must name a place that can be used, got
train     --out {t}/full                 --out must name a new folder, got
train     --resume {t}/none              --out must not be given with --resume
train     --compare sliced:0.1:8:2       --compare must name some of
train     --compare sliced:8:0.1         --compare must name some of
train     --compare secagg:0.1           --compare must give no α to secagg
train     --compare plain:8              --compare must give no bits to plain
train     --compare plain,plain          --compare must be different values, got 'plain,plain'
train     --seeds 1,x                    --seeds must be different whole numbers separated by commas, got '1,x'
train     --seeds 1,1                    --seeds must be different whole numbers separated by commas, got '1,1'
train     --seeds 01,1                   --seeds must be different whole numbers separated by commas, got '01,1'
train     --seeds 1,2 --seed 3           --seeds must not be given with --seed
train     --sample 0                     --sample must be in (0, 1], got 0
train     --sample 0.3                   --sample must be at least 0.6 with 5 clients
train     --sample 0.6 --authenticated   --sample must be 1 with --authenticated
train     --config {t}/none              --config must be a TOML or JSON file, got
train     --config {t}/list.json         --config must hold options with names, got a list
train     --config {t}/odd.toml          --config must hold options of train, got 'colour'
train     --config {t}/empty.toml        --lr must be different values, got ''
train     --config {t}/kind.toml         --batch must be a whole number, got 'ten'
train     --model cnn                    --model must be one of softmax
train     --model small-cnn              --model small-cnn takes samples of shape
train     --partition shards --shards 5000  --shards must be
train     --alpha 0.00001                --alpha of 1e-05 sends nothing
train     --alpha 0.5 --gain 3           --gain must be in [1, 2]
train     --modulus-bits 3               --modulus-bits must be from 4 to 32, got 3
train     --drop-at LUNCH                --drop-at must be one of ADVERTISE_KEYS
train     --group-size 2                 --group-size must be from 3 to the 5 clients, got 2
train     --group-size 4 --aggregator secagg  --group-size must not be given with secagg,
train     --group-size 3 --aggregator secagg-plus  --group-size must not be given with secagg-plus, which has one group
train     --combine median --aggregator secagg --group-size 5  --combine must not be given with secagg, which has one
train     --threshold 2                  --threshold must be from 3 to 5
train     --authenticated --threshold 3  --threshold must be from 4 to 5 with a roster
train     --downlink up                  --downlink must be one of steps, model, got 'up'
train     --authenticated --aggregator plain  --authenticated must not be given with plain
train     --authenticated --compare sliced,plain  --authenticated must not be given with plain
train     --weights votes                --weights must be one of uniform, examples, got 'votes'
train     --downlink-bits 3              --downlink-bits must be one of 2, 4, 8, got 3
train     --gain much                    --gain must be a number of at least 1, or auto, got 'much'
train     --dp-epsilon -1                --dp-epsilon must be above 0, got -1
train     --dp-epsilon 1e-4              --dp-epsilon must allow noise of at most 10,000 clips
report    {t}/none                       RUN must be a folder written by
report    --table html                   --table must be one of md, latex, got 'html'
report    --table md --json              --table must not be given with --json
report    --csv {t}/all.txt              --csv must name a file that ends in .csv, got
report    --csv {t}/none/all.csv         --csv must be in a folder that exists and can be written, got
report    --pdf {t}/file                 --pdf must name a folder, got the file
report    --out {t}/page.pdf             --out must name a file that ends in .html, got
attack    --clients 3                    --clients must be
attack    --alpha 2                      --alpha must be in [0.001, 1], got 2
attack    --clients many                 --clients must be a whole number, got 'many'
reproduce --minutes nan                  --minutes must be at least 0, got nan
reproduce --out {t}/file                 --out must name a place that can be used, got
enrol     --run=                         --run must be a name, got an empty one
enrol     --key {t}/none                 --key must name
enrol     --key {t}/file                 --key must name
enrol     --run-key {t}/none/key         --run-key must name
enrol     --run-key {t}/a.key            --run-key must name a new file
enrol     --entry {t}/none/entry         --entry must name
enrol     --entry {t}                    --entry must name
build     {t}/a.json                     ENTRIES must be those of at least 3 users, got 1
build     {t}/a.json {t}/b.json {t}/file  ENTRIES must be
build     {t}/a.json {t}/b.json {t}      ENTRIES must name a place
build     --run= {t}/a.json {t}/b.json {t}/c.json  --run must be a name, got an empty one
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
          attack shout                   NAME must
          doctor {t}/none                APP must
          report                         RUN is required
          nothing                        No such command 'nothing'
          --nothing                      --nothing is not an option
"""


SAYS = (
    "got", "is not an option", "is required", "must not be given", "No such command", "requires an argument",
    "must be lower", "does not take a value", "extra argument", "is not a run folder", " sends ",
    "takes samples of", "must give no", "must be 1 with",
)  # fmt: skip


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
    (here / "list.json").write_text("[1]")
    (here / "odd.toml").write_text('colour = "red"')
    (here / "empty.toml").write_text("lr = []")
    (here / "kind.toml").write_text('batch = "ten"')
    write_run(here / "run", rounds=1)
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
    assert any(word in err for word in SAYS), f"what was got, or what else is wrong: {err}"
    assert not list(folder.glob("new*")), "bad input leaves nothing behind"


TEN = [np.ones(20)] * 10


def summed(**options: Any) -> Callable[[], object]:
    return lambda: secure_sum(TEN, options=RoundOptions(**options))


def trained(*given: Any, **options: Any) -> Callable[[], object]:
    return lambda: train_federated(*given, out="never", **options)


def planned(**options: Any) -> Callable[[], object]:
    usual = {"clients": 100, "dim": 1000, "dropout": 0.1, "colluding": 0.1, "min_anonymity": 5}
    return lambda: plan_round(Goal(**(usual | options)))


def data(x: Any, y: Any, **options: Any) -> Callable[[], object]:
    return lambda: Dataset.from_arrays(x, y, **options)


NINE = np.ones((9, 2))
FIVE = Parameters.create(5, 8)
CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: secure_sum(TEN[:2]), "updates must come from at least 3 users, got 2"),
    (lambda: secure_sum(7), "updates must be a list of vectors, one per user, got int"),  # type: ignore[arg-type]
    (lambda: secure_sum([["a"]] * 5), "updates must be vectors of numbers, got <U1 from user 0"),
    (
        lambda: secure_sum([np.ones(2), np.ones(3), np.ones(2)]),
        "updates must be vectors of one length, here 2, got shape (3,) from user 1",
    ),
    (lambda: secure_sum(TEN, weights=[1]), "weights must be one for each of 10 users, got 1"),
    (lambda: secure_sum(TEN, weights=[0.5] * 10), "weights must be whole numbers from 0 to 2^40, got 0.5"),  # type: ignore[list-item]
    (lambda: secure_sum(TEN, weights=[-1] * 10), "weights must be whole numbers from 0 to 2^40, got -1"),
    (
        lambda: secure_sum(TEN, weights=[1 << 41] * 10),
        "weights must be whole numbers from 0 to 2^40, got 2199023255552",
    ),
    (lambda: secure_sum(TEN, weights=[0] * 10), "weights must not all be 0"),
    (lambda: secure_sum(TEN, weights=3), "weights must be a list of whole numbers, one per user, got int"),  # type: ignore[arg-type]
    (lambda: secure_sum([*TEN, [np.inf] * 20]), "updates must be finite, got inf from user 10"),
    (lambda: secure_sum([*TEN, [1.0, np.nan]]), "updates must be finite, got nan from user 10"),
    (lambda: secure_sum([[[1], [2, 3]]] * 5), "updates must be vectors, got lists of unequal length from user 0"),
    (lambda: secure_sum(TEN, drops=[0]), "drops must map users to stages, as {2: 'UPLOAD'} does, got list"),  # type: ignore[arg-type]
    (lambda: secure_sum(TEN, drops={"0": "UPLOAD"}), "drops must name users from 0 to 9, got '0'"),  # type: ignore[dict-item]
    (lambda: secure_sum(TEN, drops={0.5: "UPLOAD"}), "drops must name users from 0 to 9, got 0.5"),  # type: ignore[dict-item]
    (lambda: secure_sum(TEN, drops={77: Stage.UPLOAD}), "drops must name users from 0 to 9, got 77"),
    (lambda: secure_sum(TEN, drops={1: "LUNCH"}), "drops must name one of ADVERTISE_KEYS, "),
    (lambda: secure_sum(TEN, options={"alpha": 1}), "options must be RoundOptions, got dict"),  # type: ignore[arg-type]
    (summed(alpha=2), "alpha must be in (0, 1], got 2"),
    (summed(alpha="half"), "alpha must be a number, got 'half'"),
    (summed(pattern="star"), "pattern must be one of sliced, full, pairwise, got 'star'"),
    (summed(modulus_bits=3), "modulus_bits must be from 4 to 32, got 3"),
    (summed(modulus_bits=8.5), "modulus_bits must be a whole number, got 8.5"),
    (summed(group_size=2), "group_size must be from 3 to the 10 clients, got 2"),
    (summed(threshold=99), "threshold must be from 6 to 10"),
    (summed(threshold="7"), "threshold must be a whole number, got '7'"),
    (summed(dropout=float("nan")), "dropout must be in [0, 0.5), got nan"),
    (summed(neighbours=0), "neighbours must be at least 2, got 0"),
    (summed(clip="x"), "clip must be a number, got 'x'"),
    (summed(max_weight=-1), "max_weight must be from 0 to 2^40, got -1"),
    (summed(colluding=0.7), "colluding must be in [0, 0.5), got 0.7"),
    (summed(same_slices=1), "same_slices must be true or false, got 1"),
    (planned(alpha=2), "alpha must be in (0, 1], got 2"),
    (planned(clients=1), "clients must be from 3 to 1048576, got 1"),
    (planned(server="evil"), "server must be one of malicious, semi-honest, got 'evil'"),
    (planned(min_anonymity=0), "min_anonymity must be from 1 to the 100 clients, got 0"),
    (planned(clients="10"), "clients must be a whole number, got '10'"),
    (planned(dropout="x"), "dropout must be a number, got 'x'"),
    (planned(noise=8), "noise must be DifferentialPrivacy, got int"),
    (lambda: DifferentialPrivacy("8", 9), "epsilon must be a number, got '8'"),  # type: ignore[arg-type]
    (lambda: DifferentialPrivacy(8, 2.5), "rounds must be a whole number, got 2.5"),  # type: ignore[arg-type]
    (lambda: DifferentialPrivacy(8, 9, delta=None), "delta must be a number, got None"),  # type: ignore[arg-type]
    (lambda: DifferentialPrivacy(8, 9, clip="x"), "clip must be a number, got 'x'"),  # type: ignore[arg-type]
    (lambda: Parameters.create("5", 8), "clients must be a whole number, got '5'"),  # type: ignore[arg-type]
    (lambda: Parameters.create(5, 8.0), "dim must be a whole number, got 8.0"),  # type: ignore[arg-type]
    (lambda: Parameters.create(5, 8, {}), "options must be RoundOptions, got dict"),  # type: ignore[arg-type]
    (lambda: Parameters.create(5, 8, roster=3), "roster must be Roster, got int"),  # type: ignore[arg-type]
    (lambda: Parameters.create(5, 8, session="x" * 32), "session must be bytes, got str"),  # type: ignore[arg-type]
    (lambda: Client("x", 0), "params must be Parameters, got int"),  # type: ignore[arg-type]
    (lambda: Client("x", FIVE), "user must be a whole number, got 'x'"),  # type: ignore[arg-type]
    (lambda: Client(0, FIVE, 2), "policy must be Policy, got int"),  # type: ignore[arg-type]
    (lambda: Server(5), "params must be Parameters, got int"),  # type: ignore[arg-type]
    (lambda: Server(FIVE, 2), "roster must be Roster, got int"),  # type: ignore[arg-type]
    (lambda: Server(FIVE).handle(b"", 0), "data must be the bytes of a message, got int"),  # type: ignore[arg-type]
    (lambda: Client(0, FIVE).handle("", TEN[0]), "data must be the bytes of a message, got str"),  # type: ignore[arg-type]
    (lambda: Server(FIVE, threads="x"), "threads must be a whole number, got 'x'"),  # type: ignore[arg-type]
    (planned(failure_log2=1), "failure_log2 must be at least -1000 and below 0, got 1"),
    (trained(3), "dataset must be a name or a Dataset, got int"),
    (trained("cats"), "dataset must be one of digits, mnist, fashion-mnist, cifar10, got 'cats'"),
    (trained("digits", 7), "model must be a name, a Model, a torch.nn.Module or a function, got int"),
    (trained("digits", "cnn"), "model must be one of softmax, mlp, "),
    (trained(alfa=1), "alfa is not an option; the options are aggregator, alpha, "),
    (trained(clients="5"), "clients must be a whole number, got '5'"),
    (trained(clients=5.5), "clients must be a whole number, got 5.5"),
    (trained(lr=[0.1, 0.2]), "lr must be a number, got [0.1, 0.2]"),
    (trained(rounds=True), "rounds must be a whole number, got True"),
    (trained(authenticated="yes"), "authenticated must be true or false, got 'yes'"),
    (trained(workers=0), "workers must be at least 1, got 0"),
    (trained(resume="nowhere"), "out must not be given with resume"),
    (lambda: train_federated(resume="nowhere"), "resume nowhere is not a run folder"),
    (lambda: TrainingConfig.create(gain=0.5), "gain must be a number of at least 1, or auto, got 0.5"),
    (lambda: TrainingConfig.create(drop_at="LUNCH"), "drop_at must be one of ADVERTISE_KEYS, "),
    (data(NINE, [0, 1]), "train_x must hold one row for each of the 2 labels, and at least one, got shape (9, 2)"),
    (data([["a"]] * 9, [0] * 9), "train_x must be an array of numbers: "),
    (data(NINE, ["a"] * 9), "train_y must be a one-dimensional array of whole numbers, got 1 dimensions of <U1"),
    (data(NINE, [-1] * 9), "train_y must count the classes from 0, got -1"),
    (data(np.full((9, 2), np.nan), [0] * 9), "train_x must be finite numbers, got NaN or infinity"),
    (data(NINE, [0] * 9, test_fraction=0), "test_fraction must leave one of 9 samples on either side, got 0"),
    (data(NINE, [0] * 9, test_x=NINE), "test_x must be given together with test_y"),
    (data(NINE, [3] * 9, classes=["a"]), "classes has 1 names, but a label is 3"),
    (lambda: write_report(Path("nowhere")), "run_dir must be a folder written by `sparsesecagg train` or by Flower"),
]


@pytest.mark.parametrize(("call", "sentence"), CALLS, ids=[sentence for _, sentence in CALLS])
def test_a_bad_call_gets_one_sentence(
    call: Callable[[], object], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput) as caught:
        call()
    assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir()), "bad input leaves nothing behind"


def test_there_are_as_many_bad_inputs_as_promised() -> None:
    assert len(cases()) >= 120 and len(CALLS) >= 50


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


PROGRAM = "from sparsesecagg.lab.cli import main; main()"


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


PLANNED = "plan --clients 9 --dim 20 --dropout 0.1 --colluding 0 --min-anonymity 2"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("line", [PLANNED, f"{PLANNED} --json", "simulate --help", "--version"])
@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (">/dev/full", "the output can't be written: No space left on device."),
        (">&-", "standard output must be open, got none."),
    ],
)
def test_an_output_that_takes_nothing_ends_with_one_sentence(
    buffered: str, line: str, output: str, sentence: str
) -> None:
    done = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", f'exec "$0" -c "$1" {line} {output}', sys.executable, PROGRAM],
        env={**os.environ, "PYTHONUNBUFFERED": buffered},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, f"sparsesecagg: {sentence}\n")


@pytest.mark.parametrize("line", [PLANNED, "simulate --help"])
def test_letters_that_an_output_does_not_know_are_question_marks(line: str) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAM, *line.split()],
        env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"") and b"?" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="sends signals to a group of processes")
@pytest.mark.parametrize("options", [[], ["--compare", "sliced,plain"]], ids=["one run", "a comparison"])
def test_ctrl_c_says_how_to_resume_and_resuming_works(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal sends Ctrl-C to every process of the group, workers too."""
    pytest.importorskip("sklearn")
    folder = tmp_path / "run"
    # Whoever starts the tests in the background has Ctrl-C ignored by all their children.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); " + PROGRAM
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
