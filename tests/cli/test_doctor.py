"""`sparsesecagg doctor`: good apps pass, and each way to break one is named with what to change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.commands import run

pytest.importorskip("flwr.serverapp")

PROJECT = """
[project]
name = "my-app"
version = "1.0.0"
dependencies = ["flwr[simulation]>=1.41", "sparsesecagg[flower] @ file:///srv/sparsesecagg"]

[tool.flwr.app]
publisher = "me"
"""


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSESECAGG_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.delenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", raising=False)


def write_app(folder: Path, project: str = PROJECT) -> Path:
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(project, "utf-8")
    return folder


def examine(capsys: Any, app: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    code, out, err = run(capsys, "doctor", str(app), "--json")
    assert out.count("\n") == 1, err
    answer = json.loads(out)
    assert answer["healthy"] is (code == 0)
    return code, {finding["check"]: finding for finding in answer["findings"]}


def test_a_good_app_is_called_so(tmp_path: Path, capsys: Any) -> None:
    code, found = examine(capsys, write_app(tmp_path / "app"))
    assert code == 0
    assert list(found) == ["versions", "dependency", "ledger"]
    code, out, _ = run(capsys, "doctor", str(tmp_path / "app"))
    assert code == 0
    assert out.count("✓") == 3


def test_an_app_that_does_not_ask_for_the_package_is_told_the_line(tmp_path: Path, capsys: Any) -> None:
    project = PROJECT.replace(', "sparsesecagg[flower] @ file:///srv/sparsesecagg"', "")
    code, found = examine(capsys, write_app(tmp_path / "app", project))
    assert code == 1
    assert "sparsesecagg[flower] @ file:" in found["dependency"]["change"]


def test_what_is_installed_from_a_folder_can_not_be_installed_by_name(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = PROJECT.replace("[flower] @ file:///srv/sparsesecagg", "[flower,learn]")  # Extras are kept.
    app = write_app(tmp_path / "app", project)
    monkeypatch.setattr("sparsesecagg.lab.cli.doctor._installed_from", lambda: "file:///home/me/sparsesecagg")
    code, found = examine(capsys, app)
    assert code == 1
    assert '"sparsesecagg[flower,learn] @ file:///home/me/sparsesecagg"' in found["dependency"]["change"]
    monkeypatch.setenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "1")
    assert examine(capsys, app)[0] == 0


def test_an_old_flower_is_named_with_the_version_that_is_needed(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparsesecagg.lab.cli.doctor.OLDEST_FLOWER", (99, 0))
    code, found = examine(capsys, write_app(tmp_path / "app"))
    assert code == 1
    assert "flwr[simulation]>=99.0" in found["versions"]["change"]


@pytest.mark.parametrize("fault", ["file", "open"])
def test_a_ledger_that_can_not_be_used_is_named(
    fault: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own ledger"
    if fault == "file":
        folder.touch()
    else:
        folder.mkdir(mode=0o755)
    monkeypatch.setenv("SPARSESECAGG_LEDGER", str(folder))
    code, found = examine(capsys, write_app(tmp_path / "app"))
    assert code == 1
    assert str(folder) in found["ledger"]["found"]


@pytest.mark.parametrize(
    "project", [None, "[project", "[tool]", "project = 3", PROJECT.replace("[tool.flwr.app]", "[tool.other]")]
)
def test_what_is_no_app_is_bad_input(project: str | None, tmp_path: Path, capsys: Any) -> None:
    app = tmp_path / "app"
    if project is not None:
        write_app(app, project)
    code, out, err = run(capsys, "doctor", str(app))
    assert (code, out) == (2, "")
    assert "APP must be the folder of a Flower app" in err
