"""`sparsesecagg report`: run folders of training and of Flower, drawn and compared."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from cli.commands import run, run_json
from lab.report.synthetic import write_comparison, write_run


def test_one_folder_gets_its_report(tmp_path: Path, capsys: Any) -> None:
    folder = write_run(tmp_path / "run", rounds=3)
    answer = run_json(capsys, "report", str(folder))
    assert answer["report"] == str(folder / "report.html")
    assert [each["name"] for each in answer["runs"]] == ["sliced"]
    assert answer["runs"][0]["rounds"] == 3
    assert (folder / "report.html").is_file()


def test_folders_of_training_and_of_flower_are_compared_in_one_page(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compared = write_comparison(tmp_path / "all", ("sliced", "secagg"), rounds=3)
    flower = write_run(tmp_path / "flower", rounds=3)
    (flower / "partition.json").unlink()  # Nobody knows it there.
    config = json.loads((flower / "config.json").read_text())
    (flower / "config.json").write_text(json.dumps({**config, "engine": "flower", "strategy": "FedAvg"}))
    answer = run_json(capsys, "report", str(compared), str(flower))
    assert answer["report"] == "report.html"
    assert [each["name"] for each in answer["runs"]] == ["sliced (all)", "secagg", "sliced (flower)"]
    assert [each["engine"] for each in answer["runs"]] == ["in_process", "in_process", "flower"]
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "engine (differs)" in page and "<td>flower</td>" in page


def test_the_table_is_printed_and_the_page_goes_where_it_is_wanted(tmp_path: Path, capsys: Any) -> None:
    folder = write_run(tmp_path / "run", rounds=2)
    code, out, _ = run(capsys, "report", str(folder), "--out", str(tmp_path / "page.html"))
    assert code == 0
    assert "sliced" in out
    assert (tmp_path / "page.html").is_file()
    assert not (folder / "report.html").exists()


def test_seeds_are_one_experiment_in_every_form(tmp_path: Path, capsys: Any) -> None:
    """JSON, Markdown, LaTeX, the long CSV and PDF figures; files among the folders are skipped."""
    folders = [write_run(tmp_path / "in" / f"s{seed}", rounds=3, seed=seed) for seed in range(3)]
    (tmp_path / "in" / "notes.txt").write_text("mine")
    given = [*map(str, sorted((tmp_path / "in").iterdir())), "--out", str(tmp_path / "page.html")]
    answer = run_json(capsys, "report", *given, "--csv", str(tmp_path / "all.csv"), "--pdf", str(tmp_path / "pdf"))
    (found,) = answer["runs"]
    assert (found["name"], found["seeds"]) == ("sliced", 3) and found["accuracy_deviation"] >= 0
    rows = list(csv.DictReader((tmp_path / "all.csv").open()))
    last = [float(row["value"]) for row in rows if row["metric"] == "accuracy" and row["round"] == "3"]
    assert len(last) == 3 and found["accuracy"] == pytest.approx(sum(last) / 3)
    assert {row["seed"] for row in rows} == {"0", "1", "2"} and {row["alpha"] for row in rows} == {"0.1"}
    assert all(path.read_bytes().startswith(b"%PDF") for path in (tmp_path / "pdf").iterdir())
    assert answer["files"] == [
        str(tmp_path / "pdf" / "accuracy-by-round.pdf"),
        str(tmp_path / "pdf" / "accuracy-by-sent.pdf"),
        str(tmp_path / "all.csv"),
    ]
    shown = f"{100 * found['accuracy']:.1f}", f"{100 * found['accuracy_deviation']:.1f}"
    _, markdown, _ = run(capsys, "report", *given, "--table", "md")
    assert "| sliced | {} ± {} % | 3 |".format(*shown) in markdown
    _, latex, _ = run(capsys, "report", *given, "--table", "latex")
    assert r"sliced & {} $\pm$ {} \% & 3 &".format(*shown) in latex and r"\bottomrule" in latex
    assert "fillcolor" in (tmp_path / "page.html").read_text("utf-8"), "bands"
    assert folders[0].joinpath("report.html").exists() is False


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{t}/none"], "RUN must be a folder written by"),
        (["{t}"], "RUN must be a folder written by"),
        ([], "RUN is required"),
        (["{t}/run", "--table", "html"], "--table must be one of md, latex"),
        (["{t}/run", "--table", "md", "--json"], "--table must not be given with --json"),
        (["{t}/run", "--csv", "{t}/all.txt"], "--csv must name a file that ends in .csv"),
        (["{t}/run", "--pdf", "{t}/run/config.json"], "--pdf must name a folder"),
        (["{t}/run", "--out", "{t}/page.pdf"], "--out must name a file that ends in .html"),
        (["{t}/run", "--out", "{t}/none/page.html"], "--out must be in a folder that exists and can be written"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, tmp_path: Path, capsys: Any) -> None:
    write_run(tmp_path / "run", rounds=1)
    code, out, err = run(capsys, "report", *(each.format(t=tmp_path) for each in arguments))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
