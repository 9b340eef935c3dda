"""`sparsesecagg roster`: from three users' identities to a roster that an authenticated round accepts."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest

from cli.commands import run, run_json
from sparsesecagg import Cohort, InvalidInput, Parameters, RoundOptions, run_round
from sparsesecagg.crypto.identity import Identity, Roster, RunSecret, run_key

SOME = "8f" * 32
"""A value of a beacon."""


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


def build(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> Path:
    """Build the roster of the three users."""
    roster = folder / "roster.json"
    entries = [str(folder / f"{user}.demo.json") for user in "abc"]
    run_json(capsys, "roster", "build", "--run", "demo", "--roster", str(roster), *options, *entries)
    return roster


def people(folder: Path, roster: Roster) -> list[Identity]:
    return [
        Identity(number, RunSecret((folder / f"{user}.demo.run").read_bytes()), roster)
        for number, user in enumerate("abc")
    ]


def test_a_round_runs_with_the_roster_that_was_built(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roster = Roster.load(build(capsys, folder))
    params = Parameters.create(3, 10, RoundOptions(alpha=0.5), roster=roster)
    assert run_round(params, [np.full(10, 0.5)] * 3, Cohort(identities=people(folder, roster))).exact


def test_group_size_and_collusion_stand_in_the_roster(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = Roster.load(build(capsys, folder))
    assert (usual.group_size, usual.colluding, usual.beacon, len(usual.seed or b"")) == (None, 0.1, "", 32)
    (folder / "roster.json").unlink()
    other = Roster.load(build(capsys, folder, "--group-size", "3", "--colluding", "0.2"))
    assert (other.group_size, other.colluding) == (3, 0.2)
    assert other.seed != usual.seed, "drawn anew for every roster"


def test_a_roster_is_not_drawn_again_in_its_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever could draw until the groups please would choose them."""
    before = build(capsys, folder).read_bytes()
    entries = [str(folder / f"{user}.demo.json") for user in "abc"]
    code, _, err = run(capsys, "roster", "build", "--run", "demo", "--roster", str(folder / "roster.json"), *entries)
    assert (code, err) == (2, "sparsesecagg: --roster must name a new file, got roster.json, which exists.\n")
    assert (folder / "roster.json").read_bytes() == before


def test_a_beacon_gives_everybody_the_same_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roster = build(capsys, folder, "--beacon", "drand round 7")
    handed_out = roster.read_bytes()
    checked = run_json(capsys, "roster", "check", "--roster", str(roster))
    assert (checked["seed"], checked["beacon"]) == (None, "drand round 7")
    code, _, err = run(capsys, "roster", "check", "--roster", str(roster), "--value", SOME)
    assert (code, "--roster must have a seed with --value, got roster.json, which has none yet" in err) == (2, True)
    with pytest.raises(InvalidInput, match="must have a seed"):
        Roster.load(roster).epoch_seed(1)
    sealed = run_json(capsys, "roster", "seal", "--roster", str(roster), "--value", SOME)
    (folder / "copy.json").write_bytes(handed_out)
    again = run_json(capsys, "roster", "seal", "--roster", str(folder / "copy.json"), "--value", SOME)
    assert (sealed["seed"], sealed["digest"]) == (again["seed"], again["digest"])
    assert sealed["seed"] == (Roster.load(roster).seed or b"").hex() not in (SOME, "")
    assert run_json(capsys, "roster", "check", "--roster", str(roster), "--value", SOME)["seed"] == sealed["seed"]
    loaded = Roster.load(roster)
    params = Parameters.create(3, 10, roster=loaded)
    assert run_round(params, [np.full(10, 0.5)] * 3, Cohort(identities=people(folder, loaded))).exact


def test_a_seed_is_added_once_and_checked_against_the_beacon(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roster = build(capsys, folder, "--beacon", "drand round 7")
    seal = ["roster", "seal", "--roster", str(roster), "--value"]
    for bad in ("xyz", "123", "", SOME + "0"):
        code, _, err = run(capsys, *seal, bad)
        assert (code, err.startswith("sparsesecagg: --value must")) == (2, True)
    run_json(capsys, *seal, SOME)
    before = roster.read_bytes()
    code, _, err = run(capsys, *seal, "00" * 32)
    assert (code, err.startswith("sparsesecagg: --roster must have no seed yet")) == (2, True)
    assert roster.read_bytes() == before
    code, _, err = run(capsys, "roster", "check", "--roster", str(roster), "--value", "00" * 32)
    assert (code, "does not follow from the beacon's value" in err) == (1, True)


def test_the_roster_is_checked_against_trusted_identities(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roster = build(capsys, folder)
    check = ["roster", "check", "--roster", str(roster)]
    found = run_json(capsys, *check, "--trusted", str(folder / "trusted"))
    assert (found["users"], found["run"], found["groups"], found["trusted"]) == (3, "demo", 1, True)
    assert run_json(capsys, *check)["trusted"] is None
    assert "identities not compared, give --trusted" in run(capsys, *check)[1]
    assert "all as in --trusted" in run(capsys, *check, "--trusted", str(folder / "trusted"))[1]
    (folder / "trusted").write_text("\n".join(reversed((folder / "trusted").read_text().split())))
    code, _, err = run(capsys, *check, "--trusted", str(folder / "trusted"))
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


@pytest.mark.parametrize("entry", ["identity", "new"])
def test_an_entry_overwrites_no_key(entry: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the identity nor the run key that was just made, and a run key without an entry is not kept."""
    identity, new = tmp_path / "identity", tmp_path / "new"
    run_json(capsys, "roster", "identity", "--key", str(identity))
    before = identity.read_bytes()
    given = ["--key", str(identity), "--run", "r", "--run-key", str(new), "--entry", str(tmp_path / entry)]
    code, _, err = run(capsys, "roster", "enrol", *given)
    assert (code, err) == (2, f"sparsesecagg: --entry must name a new file, got {entry}, which exists.\n")
    assert identity.read_bytes() == before
    assert not new.exists()


def test_entry_and_roster_show_public_keys_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = (folder / "a.demo.run").read_bytes()
    assert len(secret) == 32
    assert set(json.loads((folder / "a.demo.json").read_text())) == {"identity", "run_key", "signature"}
    private = [secret, run_key(RunSecret(secret), "demo").reveal(), (folder / "a.key").read_bytes()]
    _, out, err = run(capsys, "roster", "check", "--roster", str(build(capsys, folder)))
    shown = (folder / "a.demo.json").read_text() + (folder / "roster.json").read_text() + out + err
    assert not [part for part in private if part.hex() in shown]


def test_no_output_shows_a_private_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "a.key"
    _, out, err = run(capsys, "roster", "identity", "--key", str(key))
    assert key.read_bytes().hex() not in out + err


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    (tmp_path / "k").write_bytes(content)
    files = ["--key", str(tmp_path / "k"), "--run-key", str(tmp_path / "rk"), "--entry", str(tmp_path / "e")]
    code, _, err = run(capsys, "roster", "enrol", "--run", "r", *files)
    assert code == 2
    assert "--key" in err
