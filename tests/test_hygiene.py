"""Secrets stay secret: not in reprs, logs, exceptions, or the folder of a run."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.rounds import Run, small
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.protocol import Client, Policy, Stage
from sparsesecagg.protocol import client as client_module
from sparsesecagg.protocol.ledger import ClientState
from sparsesecagg.simulate.simulation import seeded_entropy


def spellings(secret: bytes) -> Iterator[bytes]:
    """Yield the ways in which bytes get written down."""
    yield secret
    yield secret.hex().encode()
    yield base64.b64encode(secret)
    yield repr(secret)[2:-1].encode()


def secrets_of(state: ClientState) -> list[bytes]:
    """Return everything that must not be seen."""
    held = [secret.reveal() for secret in state.held_secrets()]
    # Those of pairs lie one behind the other, 32 bytes each.
    return [part for all_of in held for at in range(0, len(all_of), 32) if len(part := all_of[at : at + 32]) >= 16]


def require_unseen(text: str | bytes, secrets: list[bytes]) -> None:
    """Assert that no secret is spelt out in the text."""
    data = text.encode() if isinstance(text, str) else text
    for secret in secrets:
        for spelling in spellings(secret):
            assert spelling not in data


def library_frames(error: BaseException) -> str:
    """Return the traceback as error reporters print it, with local variables, without the frames of this test."""
    place = error.__traceback__
    while place and "/tests/" in place.tb_frame.f_code.co_filename:
        place = place.tb_next
    return "".join(traceback.TracebackException(type(error), error, place, capture_locals=True).format())


@pytest.mark.parametrize("stage", [Stage.ADVERTISE_KEYS, Stage.UPLOAD, Stage.UNMASK])
def test_reprs_and_errors_show_no_secret(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """At every stage: the client, its state, and every error that a bad message provokes, with its traceback."""
    caplog.set_level(logging.DEBUG)

    def started(seed: int) -> Run:
        run = Run(small(pattern="pairwise", roster=True), seed=seed, set_up=stage is not Stage.ADVERTISE_KEYS)
        if stage is not Stage.ADVERTISE_KEYS:
            return run.run_to(stage)
        run.step()
        return run

    run = started(0)
    client = run.clients[0]
    secrets = secrets_of(client._state)
    assert len(secrets) >= (1 if stage is Stage.ADVERTISE_KEYS else 10)
    require_unseen(repr(client), secrets)
    require_unseen(repr(client._state), secrets)
    require_unseen(repr(vars(client)), secrets)
    assert run.identities
    require_unseen(f"{run.identities[0]!r} {vars(run.identities[0])!r}", secrets)
    genuine = run.inbox[0]
    for bad in (b"", genuine[:-3], genuine + b"x", started(9).inbox[0]):
        try:
            client.join(bad) if stage is Stage.ADVERTISE_KEYS else run.answer(0, bad)
        except SparseSecAggError as error:
            require_unseen(library_frames(error), secrets)
            require_unseen(repr(error), secrets)
    require_unseen(caplog.text, secrets)


def test_only_saved_state_holds_secrets_and_only_by_being_asked() -> None:
    run = Run(small()).begin()
    client = run.clients[0]
    saved = client.save()
    assert all(secret in saved for secret in secrets_of(client._state))
    require_unseen(repr(run.restored(0)), secrets_of(client._state))


def test_the_saved_state_of_a_server_holds_no_secret_of_a_user() -> None:
    run = Run(small())
    run.round()
    for client in run.clients.values():
        require_unseen(run.server.save(), secrets_of(client._state))


def test_secrets_are_wiped_when_the_round_is_over() -> None:
    run = Run(small()).begin()
    state = run.clients[0]._state
    package = state.packages[1]
    kept: list[Secret] = [package.for_upload().mask_secret, package.for_upload().private_seed]
    kept += [package.own_shares, state.secrets[1]]
    run.run_to(Stage.SHARE_KEYS)
    assert len(kept) == 4
    assert all(not any(secret.reveal()) for secret in kept)


def test_no_module_keeps_a_secret_in_a_global() -> None:
    Run(small()).round()
    assert not [name for name, value in vars(client_module).items() if isinstance(value, Secret)]


def test_a_record_of_secrets_can_not_be_written_as_json_by_accident() -> None:
    state = Run(small()).begin().clients[0]._state
    with pytest.raises((TypeError, NotImplementedError)):
        msgspec.json.encode(state)


@pytest.mark.slow
def test_a_run_folder_holds_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train two rounds with recorded randomness, then search every file for it."""
    pytest.importorskip("sklearn")
    from sparsesecagg.lab.cli import main

    drawn: list[bytes] = []
    genuine = Client.__init__

    def recording(
        self: Client, user: int, params: Any, policy: Policy | None = None, entropy: Any = None, *rest: Any
    ) -> None:
        def draw(size: int) -> bytes:
            drawn.append((entropy or seeded_entropy(0, user))(size))
            return drawn[-1]

        genuine(self, user, params, policy, draw, *rest)

    monkeypatch.setattr(Client, "__init__", recording)
    folder = tmp_path / "run"
    with pytest.raises(SystemExit) as end:
        main(
            [
                "train",
                "--clients",
                "5",
                "--rounds",
                "2",
                "--alpha",
                "1",
                "--out",
                str(folder),
                "--workers",
                "1",
                "--json",
            ]
        )
    assert not end.value.code
    secrets = [draw for draw in drawn if len(draw) >= 32]
    assert len(secrets) >= 5 * 4
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes()
        for secret in secrets:
            assert secret not in content
            assert secret.hex().encode() not in content
