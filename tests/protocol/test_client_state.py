"""What a client remembers: it survives the disk, and damaged bytes are refused with a typed error."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.rounds import Run, grouped, small, with_roster
from sparsesecagg.crypto.secrets import PrivateKey, RoundSecret, SecretShares, SharedSecret
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol import Client, Stage
from sparsesecagg.protocol.client_state import ClientState, erase, restore_state, save_state
from sparsesecagg.protocol.package import Package


def saved(**fields: Any) -> bytes:
    """Return what an unchecked writer would have saved."""
    parts = {name: fields.pop(name) for name in ("chains", "packages", "secrets") if name in fields}
    rest = {"rest": {"user": 0, "params": b"", **fields}}
    return msgspec.msgpack.encode({name: msgspec.msgpack.encode(part) for name, part in (rest | parts).items()})


@pytest.mark.parametrize("params", [with_roster(small), grouped(confirm=True)], ids=["roster", "grouped"])
def test_every_field_survives_at_every_stage(params: Any) -> None:
    run = Run(params, set_up=False)
    states = [run.clients[2]._state]
    run.set_up()
    states.append(run.clients[2]._state)
    run.begin()
    for stage in (Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK):
        run.run_to(stage)
        run.answer(2)
        states.append(run.clients[2]._state)
    for state in states:
        assert restore_state(save_state(state)) == state


def test_a_fresh_state_is_empty() -> None:
    state = restore_state(saved())
    assert state == ClientState(user=0, params=b"")
    assert (state.version, state.epoch_number, state.round_number, state.answered) == (0, 0, 0, -1)
    assert (state.nonce, state.epoch, state.order, state.confirmed, state.stopped) == (b"", b"", b"", b"", "")
    assert (state.chains, state.secrets, state.packages, state.uploaded) == ({}, {}, {}, {})
    assert (state.uploads, state.exclusions, state.history_round) == (0, 0, -1)
    assert all(secret.reveal() == b"" for secret in state.held_secrets())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        saved()[:-1],
        saved() + b"\x00",
        saved(user="x"),
        saved(stopped="XXXX").replace(b"XXXX", b"\xff\xfe\xfd\xfc"),
        saved(nonce=3),
        saved(packages={"x": b""}),
        saved(packages={1: {"message": b""}}),
        saved(sealing_private="text"),
        saved(sealing_private=[1, 2, 3]),
        saved(chains={1: 5}),
        saved(secrets={1: {2: 3}}),
        saved(sealing_private=1 << 62),
        saved(sealing_private="XXXX").replace(b"XXXX", b"\xff\xfe\xfd\xfc"),
        saved(chains="XXXX").replace(b"\xa4XXXX", b"\x91" * 100_000 + b"\xc0"),
    ],
    ids=range(16),
)
def test_damaged_bytes_are_no_saved_client(data: bytes) -> None:
    """Not even where a number stands for a secret, or arrays are nested without end."""
    with pytest.raises(MalformedMessage, match="not a saved client"):
        Client.restore(data)


def test_only_secrets_are_written_as_bytes() -> None:
    state = ClientState(user=0, params=b"")
    with pytest.raises(NotImplementedError):
        save_state(state.with_changes(nonce=object()))


def package(fill: bytes) -> Package:
    return Package(
        message=b"m",
        head=b"h",
        mask_secret=SharedSecret(fill * 16),
        private_seed=SharedSecret(fill * 16),
        own_shares=SecretShares(fill * 40),
    )


@pytest.fixture
def state() -> ClientState:
    """In round 3, with packages of rounds 3 to 5."""
    return ClientState(
        user=0,
        params=b"",
        sealing_private=PrivateKey(b"k" * 32),
        packages={number: package(bytes([number])) for number in (3, 4, 5)},
        secrets={number: {1: RoundSecret(bytes([number]) * 32)} for number in (3, 4, 5)},
        round_number=3,
        answered=0,
        order=b"order",
        confirmed=b"c",
    )


def test_a_later_round_leaves_nothing_of_earlier_ones(state: ClientState) -> None:
    later = state.from_round(4)
    assert later.packages.keys() == later.secrets.keys() == {4, 5}
    assert (later.round_number, later.answered, later.order, later.confirmed) == (4, -1, b"", b"")
    for earlier in (3, 2, 0):
        assert state.from_round(earlier) is state


def test_the_end_of_a_round_takes_its_shares_and_secrets_away(state: ClientState) -> None:
    after = state.after_round()
    assert after.packages.keys() == after.secrets.keys() == {4, 5}
    assert after.order == b""
    assert (after.round_number, after.answered) == (3, 0)


def test_only_what_is_no_longer_held_is_overwritten(state: ClientState) -> None:
    gone = [*state.secrets[3].values(), state.packages[3].mask_secret, state.packages[3].own_shares]
    kept = [state.sealing_private, *state.secrets[4].values(), state.packages[5].private_seed]
    erase(state, state.from_round(4))
    assert not any(any(secret.reveal()) for secret in gone)
    assert all(any(secret.reveal()) for secret in kept)


def test_a_package_that_was_used_keeps_the_own_shares_only(state: ClientState) -> None:
    spent = state.packages[3].spent()
    assert spent.own_shares is state.packages[3].own_shares
    assert (spent.mask_secret.reveal(), spent.private_seed.reveal()) == (b"", b"")
    assert (spent.message, spent.head) == (b"", b"h")


def test_all_secrets_of_a_state_are_known(state: ClientState) -> None:
    """One that is forgotten here would never be erased."""
    assert len(list(state.held_secrets())) == 1 + 3 * 3 + 3
    run = Run(small()).begin()
    held = {id(secret) for secret in run.clients[0]._state.held_secrets()}
    assert len(held) == 1 + 4 + 2 * (3 + 4)
