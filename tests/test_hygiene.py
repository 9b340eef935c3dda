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
from sparsesecagg.protocol.simulation import seeded_entropy

from protocol.rounds import Round, identities, small
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.protocol import Client, Policy, Stage
from sparsesecagg.protocol import client as client_module
from sparsesecagg.protocol.client_state import ClientState


def spellings(secret: bytes) -> Iterator[bytes]:
    """Yield the ways in which bytes get written down."""
    yield secret
    yield secret.hex().encode()
    yield base64.b64encode(secret)
    yield repr(secret)[2:-1].encode()


def secrets_of(state: ClientState) -> list[bytes]:
    """Return everything that must not be seen."""
    found = [state.sealing_private, state.mask_private, state.private_seed, state.own_shares]
    found += [*state.sealing_agreed.values(), *state.mask_agreed.values()]
    return [secret.reveal() for secret in found if len(secret.reveal()) >= 16]


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


@pytest.mark.parametrize("stage", [Stage.SHARE_KEYS, Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK])
def test_reprs_and_errors_show_no_secret(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """At every stage: the client, its state, and every error that a bad message provokes, with its traceback."""
    caplog.set_level(logging.DEBUG)
    people = identities(5)
    params = small(pattern="pairwise", roster_digest=people[0].roster.digest)
    game = Round(params, identities=people).run_to(stage)
    client = game.clients[0]
    secrets = secrets_of(client._state)
    assert len(secrets) >= 3
    require_unseen(repr(client), secrets)
    require_unseen(repr(client._state), secrets)
    require_unseen(repr(vars(client)), secrets)
    require_unseen(f"{people[0]!r} {vars(people[0])!r}", secrets)
    genuine = game.inbox[0]
    for bad in (b"", genuine[:-3], genuine + b"x", Round(params, seed=9, identities=people).run_to(stage).inbox[0]):
        game.inbox[0] = bad
        try:
            game.answer(0)
        except SparseSecAggError as error:
            require_unseen(library_frames(error), secrets)
            require_unseen(repr(error), secrets)
    require_unseen(caplog.text, secrets)


def test_only_saved_state_holds_secrets_and_only_by_being_asked() -> None:
    client = Round(small()).run_to(Stage.UPLOAD).clients[0]
    saved = client.save()
    assert any(secret in saved for secret in secrets_of(client._state))
    require_unseen(repr(Client.restore(saved)), secrets_of(client._state))


def test_secrets_are_wiped_when_the_round_is_over() -> None:
    game = Round(small()).run_to(Stage.UNMASK)
    state = game.clients[0]._state
    kept: list[Secret] = [state.mask_private, state.private_seed, state.own_shares, *state.sealing_agreed.values()]
    game.clients[0].unmask(game.inbox[0])
    assert all(not any(secret.reveal()) for secret in kept)
    assert game.clients[0]._state.inbox == {}


def test_no_module_keeps_a_secret_in_a_global() -> None:
    Round(small()).run_to(Stage.DONE)
    assert not [name for name, value in vars(client_module).items() if isinstance(value, Secret)]


def test_a_record_of_secrets_can_not_be_written_as_json_by_accident() -> None:
    state = Round(small()).run_to(Stage.UPLOAD).clients[0]._state
    with pytest.raises((TypeError, NotImplementedError)):
        msgspec.json.encode(state)


def test_a_run_folder_holds_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train two rounds with recorded randomness, then search every file for it."""
    pytest.importorskip("sklearn")
    from sparsesecagg.cli import main

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
    assert len(secrets) >= 2 * 5 * 4
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes()
        for secret in secrets:
            assert secret not in content
            assert secret.hex().encode() not in content
