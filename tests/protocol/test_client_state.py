"""What a client remembers: it survives the disk, and damaged bytes are refused with a typed error."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.rounds import Run, grouped, small
from sparsesecagg.crypto.secrets import PairRatchets, PrivateKey, RoundSecrets, SecretShares, SharedSecret
from sparsesecagg.errors import MalformedMessage, WrongStage
from sparsesecagg.protocol import Client, Stage
from sparsesecagg.protocol.epoch import KeyPackage, Unspent
from sparsesecagg.protocol.ledger import ClientState, StateStep, restore_state, save_state
from sparsesecagg.protocol.stages import Progress


def saved(**fields: Any) -> bytes:
    """Return what an unchecked writer would have saved."""
    names = [name for name in fields if name.partition(" ")[0] in ("keys", "header", "ratchets", "packages", "secrets")]
    parts = {name: fields.pop(name) for name in names}
    rest = {"rest": {"user": 0, "params": b"", **fields}}
    return msgspec.msgpack.encode({name: msgspec.msgpack.encode(part) for name, part in (rest | parts).items()})


@pytest.mark.parametrize("params", [small(roster=True), grouped()], ids=["roster", "groups"])
def test_every_field_survives_at_every_stage(params: Any) -> None:
    run = Run(params, set_up=False)
    states = [run.clients[2]._state]
    run.set_up()
    states.append(run.clients[2]._state)
    run.begin()
    run.clients[2].accept(run.inbox[2])
    states.append(run.clients[2]._state)
    for stage in (Stage.UPLOAD, Stage.UNMASK):
        run.run_to(stage)
        run.answer(2)
        states.append(run.clients[2]._state)
    for state in states:
        assert restore_state(save_state(state)) == state


def test_a_fresh_state_is_empty() -> None:
    state = restore_state(saved())
    assert state == ClientState(user=0, params=b"")
    assert (state.version, state.epoch_number, state.round_number, state.progress) == (0, 0, 0, Progress.NEW)
    assert (state.keys, state.header, state.sealing_private) == (None, None, None)
    assert (state.ratchet_round, state.clipped) == (0, 0)
    assert (state.ratchets, state.secrets, state.packages) == (PairRatchets(b""), {}, {})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        saved()[:-1],
        saved() + b"\x00",
        saved(user="x"),
        saved(params="XXXX").replace(b"XXXX", b"\xff\xfe\xfd\xfc"),
        saved(progress=5),
        saved(epoch_number=-1),
        saved(**{"packages x": b""}),
        saved(**{"packages 1": {"message": b""}}),
        saved(**{"unknown": b""}).replace(b"params", b"packag"),
        saved(sealing_private="text"),
        saved(sealing_private=[1, 2, 3]),
        saved(sealing_private=1 << 62),
        saved(ratchets={1: 5}),
        saved(**{"secrets 1": {2: 3}}),
        saved(keys=3),
        saved(ratchets="XXXX").replace(b"\xa4XXXX", b"\x91" * 100_000 + b"\xc0"),
    ],
    ids=range(18),
)
def test_damaged_bytes_are_no_saved_client(data: bytes) -> None:
    """Not even where a number stands for a secret, or arrays are nested without end."""
    with pytest.raises(MalformedMessage, match="not a saved client"):
        Client.restore(data)


def test_arrays_nested_without_end_are_no_saved_client() -> None:
    """In a field that nobody knows, where they are only skipped."""
    rest = msgspec.msgpack.encode({"user": 0, "params": b"", "unknown": None})[:-1] + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(MalformedMessage, match="not a saved client"):
        restore_state(msgspec.msgpack.encode({"rest": rest}))


@pytest.mark.parametrize(
    ("name", "changed"), [("packages 1", "packages x"), ("packages 1", "packages"), ("header", "header 1")]
)
def test_a_part_under_another_name_is_no_saved_client(name: str, changed: str) -> None:
    """Its content is right, so that nothing else is wrong with it."""
    run = Run(small())
    run.begin()
    run.clients[2].accept(run.inbox[2])
    parts = msgspec.msgpack.decode(save_state(run.clients[2]._state))
    assert name in parts
    parts[changed] = parts[name]
    with pytest.raises(MalformedMessage, match="not a saved client"):
        restore_state(msgspec.msgpack.encode(parts))


class TestMissingParts:
    """A saved state that has lost what its stage needs answers nothing."""

    @staticmethod
    def lost(run: Run, **changes: Any) -> Client:
        client = run.clients[2]
        state = save_state(client._state.with_changes(**changes))
        return Client.restore(state, run.policy, ledger=run.ledgers[2])

    def test_the_sealing_key(self) -> None:
        run = Run(small(), set_up=False)
        for client in run.clients.values():
            run.server.receive(None, client.advertise_keys())
        keys = run.server.close_stage()[2]
        with pytest.raises(WrongStage):
            self.lost(run, sealing_private=None).join(keys)
        self.lost(run).join(keys)

    def test_the_groups_keys(self) -> None:
        run = Run(small()).begin()
        with pytest.raises(WrongStage, match="a round"):
            self.lost(run, keys=None).accept(run.inbox[2])
        self.lost(run).accept(run.inbox[2])

    def test_the_header(self) -> None:
        run = Run(small()).begin().run_to(Stage.UNMASK)
        with pytest.raises(WrongStage, match="unmask"):
            self.lost(run, header=None).unmask(run.inbox[2])
        self.lost(run).unmask(run.inbox[2])


def test_only_secrets_are_written_as_bytes() -> None:
    state = ClientState(user=0, params=b"")
    with pytest.raises(NotImplementedError):
        save_state(state.with_changes(clipped=object()))


def package(fill: bytes) -> KeyPackage:
    return KeyPackage(
        mask_key=b"k",
        own_shares=SecretShares(fill * 40),
        unspent=Unspent(b"m", SharedSecret(fill * 16), SharedSecret(fill * 16)),
    )


@pytest.fixture
def state() -> ClientState:
    """In round 3, with packages of rounds 3 to 5."""
    return ClientState(
        user=0,
        params=b"",
        sealing_private=PrivateKey(b"k" * 32),
        packages={number: package(bytes([number])) for number in (3, 4, 5)},
        secrets={number: RoundSecrets(bytes([number]) * 32) for number in (3, 4, 5)},
        ratchets=PairRatchets(b"r" * 32),
        round_number=3,
        progress=Progress.UPLOADED,
        header=b"header",
    )


def test_a_later_round_leaves_nothing_of_earlier_ones(state: ClientState) -> None:
    later = state.from_round(4)
    assert later.packages.keys() == later.secrets.keys() == {4, 5}
    assert (later.round_number, later.progress, later.header) == (3, Progress.OVER, None)
    assert later.from_round(4) is later
    for earlier in (3, 2, 0):
        assert state.from_round(earlier) is state


def test_only_what_is_no_longer_held_is_dropped(state: ClientState) -> None:
    used = state.packages[3].for_upload()
    gone = [state.secrets[3], used.mask_secret, used.private_seed]
    dropped = StateStep(state, state.from_round(4)).dropped()
    assert {id(each) for each in dropped} == {id(each) for each in [*gone, state.packages[3].own_shares]}
    assert StateStep(state, state).dropped() == []


def test_a_package_that_was_used_keeps_the_own_shares_only(state: ClientState) -> None:
    spent = state.packages[3].spent()
    assert spent.own_shares is state.packages[3].own_shares
    assert (spent.unspent, spent.mask_key) == (None, b"k")
    with pytest.raises(WrongStage, match="the key package was used"):
        spent.for_upload()
    after = state.with_changes(packages={**state.packages, 3: spent})
    dropped = StateStep(state, after).dropped()
    used = state.packages[3].for_upload()
    assert {id(each) for each in dropped} == {id(used.mask_secret), id(used.private_seed)}


def test_all_secrets_of_a_state_are_dropped_with_it(state: ClientState) -> None:
    """One that is forgotten here would never be erased."""
    empty = ClientState(user=0, params=b"")
    assert len(StateStep(state, empty).dropped()) == 1 + 1 + 3 * 3 + 3
    run = Run(small()).begin()
    assert len(StateStep(run.clients[0]._state, empty).dropped()) == 1 + 2 * (3 + 1)


def test_a_step_says_what_has_changed_and_the_parts_make_up_the_state(state: ClientState) -> None:
    """Only that is written to disk; parts that are gone are named."""
    state = state.with_changes(version=1)
    changes = StateStep(state, state.from_round(4)).changes()
    assert {name for name, part in changes.items() if part is None} == {"packages 3", "secrets 3", "header"}
    assert {name for name, part in changes.items() if part is not None} == {"rest"}
    first = StateStep(ClientState(user=0, params=b""), state).changes()
    assert restore_state(msgspec.msgpack.encode(first)) == state


def test_states_do_not_print_their_secrets(state: ClientState) -> None:
    assert "kkkk" not in repr(state)
    assert "rrrr" not in repr(state)
