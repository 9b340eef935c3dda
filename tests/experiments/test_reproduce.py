"""`sparsesecagg reproduce`: everything the paper shows, from one command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.commands import run, run_json
from experiments.common.command import _estimate
from experiments.common.experiment import NAMES, load

pytestmark = pytest.mark.slow


def numbers(folder: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))["numbers"] for path in folder.glob("*.json")}


def test_all_of_it_is_quick_complete_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # One test, because a fixture for several would be made anew in every process that pytest runs tests in.
    folder = tmp_path / "once"
    printed = run_json(capsys, "reproduce", "all", "--quick", "--out", str(folder))
    assert set(printed["results"]) == set(NAMES)
    for name in NAMES:
        check_result(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")), name)
        for kind, head in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
            drawn = list((folder / "plots").glob(f"{name}*{kind}"))
            assert drawn, f"no {kind} of {name}"
            assert all(path.read_bytes().startswith(head) and str(path) in printed["plots"] for path in drawn)


def check_result(result: Mapping[str, Any], name: str) -> None:
    """A result names its seed, configuration, commit and machine."""
    assert result["complete"]
    assert (result["name"], result["scale"], result["seed"]) == (name, "quick", 0)
    assert result["configuration"] and result["numbers"] and result["machine"]["cores"]
    assert {"commit", "version", "command"} <= set(result)
    assert result["seeds"] == [0]
    assert set(result["data"]) == {"name", "sha256", "note"}
    assert "load_before" in result["machine"]


def test_training_that_ran_out_of_time_resumes_to_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("reproduce", "fig5", "--quick", "--out", str(tmp_path / "cut"))
    assert not run_json(capsys, *options, "--minutes", "0.005")["complete"]["fig5"]
    assert run_json(capsys, *options)["complete"]["fig5"]
    run_json(capsys, "reproduce", "fig5", "--quick", "--out", str(tmp_path / "whole"))
    assert numbers(tmp_path / "cut") == numbers(tmp_path / "whole")
    run_json(capsys, "reproduce", "fig5", "--quick", "--seed", "1", "--out", str(tmp_path / "other"))
    assert numbers(tmp_path / "other") != numbers(tmp_path / "whole")


def test_an_unknown_name_gets_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "reproduce", "fig7")
    assert (code, out) == (2, "")
    assert all(name in err for name in (*NAMES, "all"))


def test_missing_data_is_named_before_anything_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "reproduce", "fig5", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "--data-dir" in err and "train-images-idx3-ubyte" in err and str(tmp_path) in err
    assert not (tmp_path / "out").exists()


def test_a_long_one_says_how_long_it_takes() -> None:
    assert _estimate(load("fig5")).startswith("fig5: about 5 hours on one idle core")


def test_a_run_with_other_options_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("reproduce", "fig5", "--quick", "--out", str(tmp_path))
    run_json(capsys, *options, "--minutes", "0.005")
    code, _, err = run(capsys, *options, "--seed", "3")
    assert code == 2
    assert "--fresh is needed" in err and "seed 0 (now 3)" in err
