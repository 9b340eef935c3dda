"""`sparsesecagg roster`: from three users' identities to a roster that an authenticated round accepts."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from cli.commands import run, run_json
from protocol.draws import hold_draw
from protocol.rounds import LENIENT, small, updates
from sparsesecagg.crypto.identity import Identity, Roster, RunKeys, RunSecret
from sparsesecagg.simulate import run_round
from sparsesecagg.protocol.draw import verify_draw
from sparsesecagg.protocol.draw_server import DrawServer
from sparsesecagg.protocol.juror import JurorState, answer_draw
from sparsesecagg.protocol.parameters import Parameters


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with three users enrolled in one run."""
    trusted = []
    for user in "abc":
        made = run_json(capsys, "roster", "identity", "--key", str(tmp_path / f"{user}.key"))
        trusted.append(made["identity"])
        enrol(capsys, tmp_path, user, "demo")
    (tmp_path / "trusted").write_text("\n".join(trusted))
    return tmp_path


def enrol(capsys: pytest.CaptureFixture[str], folder: Path, user: str, name: str) -> None:
    """Enrol one user in a run."""
    files = [str(folder / f"{user}.{kind}") for kind in ("key", f"{name}.run", f"{name}.json")]
    run_json(capsys, "roster", "enrol", "--key", files[0], "--run", name, "--run-key", files[1], "--entry", files[2])


def build(capsys: pytest.CaptureFixture[str], folder: Path, name: str = "demo") -> Path:
    """Build the roster of the three users."""
    roster = folder / "roster.json"
    entries = [str(folder / f"{user}.{name}.json") for user in "abc"]
    run_json(capsys, "roster", "build", "--run", name, "--roster", str(roster), *entries)
    return roster


def test_a_round_runs_with_the_roster_that_was_built(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roster = Roster.load(build(capsys, folder))
    people = [
        Identity(number, RunSecret((folder / f"{user}.demo.run").read_bytes()), roster)
        for number, user in enumerate("abc")
    ]
    params = small(clients=3, roster_digest=roster.digest)
    assert run_round(params, updates(params), identities=people, policy=LENIENT).exact


def test_the_roster_is_checked_against_trusted_identities(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roster = build(capsys, folder)
    found = run_json(capsys, "roster", "check", "--roster", str(roster), "--trusted", str(folder / "trusted"))
    assert (found["users"], found["run"]) == (3, "demo")
    (folder / "trusted").write_text("\n".join(reversed((folder / "trusted").read_text().split())))
    code, _, err = run(capsys, "roster", "check", "--roster", str(roster), "--trusted", str(folder / "trusted"))
    assert code == 1
    assert "another identity" in err


def test_an_entry_of_another_run_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [str(folder / f"{user}.demo.json") for user in "abc"]
    code, _, err = run(capsys, "roster", "build", "--run", "other", "--roster", str(folder / "r"), *entries)
    assert code == 1
    assert "not signed by its identity for the run 'other'" in err
    assert not (folder / "r").exists()


def test_private_keys_are_private_and_never_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.key", "a.demo.run"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    before = (folder / "a.key").read_bytes()
    code, _, err = run(capsys, "roster", "identity", "--key", str(folder / "a.key"))
    assert (code, (folder / "a.key").read_bytes()) == (2, before)
    assert "never overwritten" in err


def test_an_entry_shows_public_keys_only_and_the_private_file_is_one_secret(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = (folder / "a.demo.run").read_bytes()
    keys = RunKeys(RunSecret(secret), "demo")
    entry = json.loads((folder / "a.demo.json").read_text())
    assert len(secret) == 32
    assert (entry["run_key"], entry["draw_key"], entry["chain_tip"]) == tuple(part.hex() for part in keys.public)
    private = [secret, keys.run_key.reveal(), keys.draw_key.reveal(), *(keys.chain.nonce(k) for k in range(1, 17))]
    _, out, err = run(capsys, "roster", "check", "--roster", str(build(capsys, folder)))
    shown = (folder / "a.demo.json").read_text() + (folder / "roster.json").read_text() + out + err
    assert not [part for part in private if part.hex() in shown]


def test_an_entry_without_a_draw_key_or_chain_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As made before there were draws: the user must enrol again."""
    for missing in ("draw_key", "chain_tip"):
        entry = json.loads((folder / "a.demo.json").read_text())
        del entry[missing]
        (folder / "old.json").write_text(json.dumps(entry))
        code, _, err = run(
            capsys, "roster", "build", "--run", "demo", "--roster", str(folder / "r"), *3 * [str(folder / "old.json")]
        )
        assert (code, "old.json" in err) == (2, True)


def test_the_roster_that_was_built_can_draw(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roster = Roster.load(build(capsys, folder))
    people = [
        Identity(number, RunSecret((folder / f"{user}.demo.run").read_bytes()), roster)
        for number, user in enumerate("abc")
    ]
    params = Parameters.create(clients=3, dim=4, pattern="full", colluders=1, roster_digest=roster.digest)
    proof = hold_draw(
        DrawServer(roster, params),
        range(3),
        lambda user, request: answer_draw(people[user], params, JurorState(), request)[1],
    )
    assert verify_draw(roster, params, proof).population.tolist() == [0, 1, 2]


def test_no_output_shows_a_private_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "a.key"
    _, out, err = run(capsys, "roster", "identity", "--key", str(key))
    assert key.read_bytes().hex() not in out + err


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    (tmp_path / "k").write_bytes(content)
    options = [
        "--key",
        str(tmp_path / "k"),
        "--run",
        "r",
        "--run-key",
        str(tmp_path / "rk"),
        "--entry",
        str(tmp_path / "e"),
    ]
    code, _, err = run(capsys, "roster", "enrol", *options)
    assert code == 2
    assert "--key" in err
