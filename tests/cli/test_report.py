"""`sparsesecagg report`: run folders of training and of Flower, drawn and compared."""

from __future__ import annotations

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
    assert "<dd>flower (sliced (flower))</dd>" in page


def test_the_table_is_printed_and_the_page_goes_where_it_is_wanted(tmp_path: Path, capsys: Any) -> None:
    folder = write_run(tmp_path / "run", rounds=2)
    code, out, _ = run(capsys, "report", str(folder), "--out", str(tmp_path / "page.html"))
    assert code == 0
    assert "sliced" in out
    assert (tmp_path / "page.html").is_file()
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{t}/none"], "RUN must be a folder written by"),
        (["{t}"], "RUN must be a folder written by"),
        ([], "RUN is required"),
        (["{t}/run", "--out", "{t}/page.pdf"], "--out must name a file that ends in .html"),
        (["{t}/run", "--out", "{t}/none/page.html"], "--out must be in an existing directory"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, tmp_path: Path, capsys: Any) -> None:
    write_run(tmp_path / "run", rounds=1)
    code, out, err = run(capsys, "report", *(each.format(t=tmp_path) for each in arguments))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
