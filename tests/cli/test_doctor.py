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

[tool.flwr.app.components]
serverapp = "my_app.server_app:app"
clientapp = "my_app.client_app:app"

[tool.flwr.federations]
default = "local"

[tool.flwr.federations.local]
options.num-supernodes = 12
"""
CLIENT = """
from flwr.clientapp import ClientApp
from sparsesecagg.flower import secagg_mod
raise RuntimeError("the doctor must not run the app")
app = ClientApp()

@app.train(mods=[secagg_mod])
def train(msg, context): ...

@app.evaluate()
def evaluate(msg, context): ...
"""
SERVER = """
from flwr.serverapp.strategy import FedAvg
from sparsesecagg.flower import SecAgg

def main(grid, context):
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0, min_available_nodes=12))
    strategy.start(grid=grid)
"""


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSESECAGG_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    monkeypatch.delenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", raising=False)


def write_app(folder: Path, project: str = PROJECT, client: str = CLIENT, server: str = SERVER) -> Path:
    (folder / "my_app").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(project, "utf-8")
    (folder / "my_app" / "client_app.py").write_text(client, "utf-8")
    (folder / "my_app" / "server_app.py").write_text(server, "utf-8")
    return folder


def examine(capsys: Any, app: Path, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
    code, out, err = run(capsys, "doctor", str(app), *options, "--json")
    assert out.count("\n") == 1, err
    answer = json.loads(out)
    assert answer["healthy"] is (code == 0)
    return code, {finding["check"]: finding for finding in answer["findings"]}


def test_a_good_app_is_called_so_and_what_would_be_chosen_is_told(tmp_path: Path, capsys: Any) -> None:
    code, found = examine(capsys, write_app(tmp_path / "app"))
    assert code == 0
    assert {finding["level"] for finding in found.values()} <= {"ok", "note"}
    assert "12 nodes in one committee of all" in found["round"]["found"]
    assert found["policy"]["found"] == "a node with the defaults accepts such a round"
    code, out, _ = run(capsys, "doctor", str(tmp_path / "app"))
    assert code == 0
    assert out.rstrip().endswith("Nothing to change.")


@pytest.mark.parametrize(
    ("file", "old", "new", "check", "change"),
    [
        ("client", "mods=[secagg_mod]", "", "client", "@app.train(mods=[secagg_mod])"),
        ("client", "mods=[secagg_mod]", "mods=[clip_mod, secagg_mod]", "client", "put secagg_mod first"),
        ("client", "@app.train(", "@app.query(", "client", "use Flower's Message API"),
        ("server", "SecAgg(FedAvg(", "Secured(FedAvg(", "server", "strategy = SecAgg(FedAvg(...))"),
        ("server", "SecAgg(FedAvg(", "SecAgg(Krum(", "server", "wrap an averaging strategy"),
        (
            "project",
            '"sparsesecagg[flower] @ file:///srv/sparsesecagg"',
            "",
            "dependency",
            "sparsesecagg[flower] @ file:",
        ),
        ("project", "num-supernodes = 12", "num-supernodes = 2", "nodes", "num-supernodes=10"),
        ("server", "SecAgg(FedAvg(", "SecAgg(alpha=0.1, strategy=FedAvg(", "round", "use 0.25 or more"),
    ],
)
def test_what_is_wrong_with_an_app_is_named_with_the_change(
    file: str, old: str, new: str, check: str, change: str, tmp_path: Path, capsys: Any
) -> None:
    sources = {"project": PROJECT, "client": CLIENT, "server": SERVER}
    assert old in sources[file]
    sources[file] = sources[file].replace(old, new)
    code, found = examine(capsys, write_app(tmp_path / "app", **sources))
    assert code == 1
    assert found[check]["level"] == "problem"
    assert change in found[check]["change"]


def test_evaluation_in_the_clear_and_an_early_start_are_notes(tmp_path: Path, capsys: Any) -> None:
    server = SERVER.replace("fraction_evaluate=0.0, min_available_nodes=12", "")
    code, found = examine(capsys, write_app(tmp_path / "app", server=server))
    assert code == 0
    assert "evaluate_first" in found["evaluation"]["change"]
    assert "min_available_nodes" in found["start"]["change"]


def test_what_is_installed_from_a_folder_can_not_be_installed_by_name(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = write_app(tmp_path / "app", PROJECT.replace(" @ file:///srv/sparsesecagg", ""))
    monkeypatch.setattr("sparsesecagg.lab.cli.doctor._direct_url", lambda: "file:///home/me/sparsesecagg")
    code, found = examine(capsys, app)
    assert code == 1
    assert '"sparsesecagg[flower] @ file:///home/me/sparsesecagg"' in found["dependency"]["change"]
    monkeypatch.setenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "1")
    assert examine(capsys, app)[0] == 0


def test_a_node_that_demands_too_much_is_told_what_could_be_kept(tmp_path: Path, capsys: Any) -> None:
    app = write_app(tmp_path / "app")
    code, found = examine(capsys, app, "--node-config", "partition-id=3 secagg-min-anonymity=13")
    assert code == 1
    assert "no run of 12 users could keep more than 12" in found["policy"]["found"]
    code, found = examine(capsys, app, "--node-config", "secagg-min-anonimity=13")
    assert "secagg-min-anonimity" in found["policy"]["found"]


@pytest.mark.parametrize("fault", ["file", "open"])
def test_a_ledger_that_can_not_be_used_is_named(fault: str, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "own ledger"
    if fault == "file":
        folder.touch()
    else:
        folder.mkdir(mode=0o755)
    code, found = examine(capsys, write_app(tmp_path / "app"), "--node-config", f"secagg-ledger='{folder}'")
    assert code == 1
    assert str(folder) in found["ledger"]["found"]


@pytest.mark.parametrize(
    ("project", "sentence"),
    [
        (None, "APP must be the folder of a Flower app"),
        ("[project", "APP has a pyproject.toml that can't be read"),
        ("[project]\nname = 'x'", "APP has no clientapp in [tool.flwr.app.components]"),
        (PROJECT.replace("my_app.client_app", "my_app.elsewhere"), "APP names my_app.elsewhere as its clientapp"),
    ],
)
def test_what_is_no_app_is_bad_input(project: str | None, sentence: str, tmp_path: Path, capsys: Any) -> None:
    app = tmp_path / "app"
    if project is not None:
        write_app(app, project)
    code, out, err = run(capsys, "doctor", str(app))
    assert (code, out) == (2, "")
    assert sentence in err
