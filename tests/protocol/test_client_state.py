"""What a client remembers: it survives the disk, and damaged bytes are refused with a typed error."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.rounds import LENIENT, Round, identities, small
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol import Client, Stage
from sparsesecagg.protocol.client_state import ClientState, restore_state, save_state


def saved(**fields: Any) -> bytes:
    """Return what an unchecked writer would have saved."""
    return msgspec.msgpack.encode({"user": 0, "params": b"", **fields})


def test_every_field_survives_at_every_stage() -> None:
    people = identities(5)
    game = Round(small(pattern="pairwise", roster_digest=people[0].roster.digest), identities=people)
    for stage in (Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK):
        state = game.run_to(stage).clients[2]._state
        assert restore_state(save_state(state)) == state
        assert state.stage is stage


def test_a_fresh_state_is_empty() -> None:
    state = restore_state(saved())
    assert state == ClientState(user=0, params=b"")
    assert (state.stage, state.clipped, state.nonce, state.directory) == (Stage.ADVERTISE_KEYS, 0, b"", b"")
    assert (state.members, state.nonces, state.confirmed) == (b"", b"", b"")
    secrets = (state.sealing_private, state.mask_private, state.private_seed, state.own_shares)
    assert all(secret.reveal() == b"" for secret in secrets)
    assert not (state.sealing_agreed or state.mask_agreed or state.inbox or state.opened)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        saved()[:-1],
        saved() + b"\x00",
        saved(user="x"),
        saved(stage="NOWHERE"),
        saved(stage="XXXX").replace(b"XXXX", b"\xff\xfe\xfd\xfc"),
        saved(nonce=3),
        saved(inbox={"x": b""}),
        saved(sealing_private="text"),
        saved(sealing_private=[1, 2, 3]),
        saved(sealing_agreed={1: 5}),
        saved(private_seed=1 << 62),
        saved(mask_private="XXXX").replace(b"XXXX", b"\xff\xfe\xfd\xfc"),
        saved(own_shares="XXXX").replace(b"\xa4XXXX", b"\x91" * 100_000 + b"\xc0"),
    ],
    ids=lambda data: data[-12:].hex(),
)
def test_damaged_bytes_are_no_saved_client(data: bytes) -> None:
    """Not even where a number stands for a secret, or arrays are nested without end."""
    with pytest.raises(MalformedMessage, match="not a saved client"):
        Client.restore(data)


def test_only_secrets_are_written_as_bytes() -> None:
    state = ClientState(user=0, params=b"")
    with pytest.raises(NotImplementedError):
        save_state(state.with_changes(nonce=object()))


def test_the_end_of_a_round_leaves_no_secret_in_memory() -> None:
    """Of either kind of round; what was opened early is overwritten too."""
    people = identities(5)
    params = small(pattern="pairwise", roster_digest=people[0].roster.digest)
    game = Round(params, identities=people).run_to(Stage.UNMASK)
    client = game.clients[1]
    state = client._state
    kept: list[Secret] = [state.sealing_private, state.mask_private, state.private_seed, state.own_shares]
    kept += [*state.sealing_agreed.values(), *state.opened.values()]
    assert len(kept) == 4 + 4 + 4
    game.answer(1)
    assert not any(any(secret.reveal()) for secret in kept)
    after = client._state
    assert (after.sealing_agreed, after.mask_agreed, after.opened, after.inbox) == ({}, {}, {}, {})
    assert Client.restore(client.save(), LENIENT, identity=people[1]).stage is Stage.DONE


def test_secrets_agreed_for_masks_are_forgotten_after_the_upload() -> None:
    game = Round(small(pattern="pairwise")).run_to(Stage.UPLOAD)
    agreed = game.clients[0]._state.mask_agreed
    assert len(agreed) == 4
    state = game.clients[0]._state.wiped()
    assert not any(any(secret.reveal()) for secret in agreed.values())
    assert state.mask_agreed == {}
    game = Round(small(pattern="pairwise")).run_to(Stage.UNMASK)
    assert game.clients[0]._state.mask_agreed == {}
