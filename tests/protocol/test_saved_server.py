"""A server that is written down between two rounds: it goes on where it was, and damaged bytes are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.rounds import Run, grouped, identities, small, with_roster
from sparsesecagg.errors import (
    AlreadyAnswered,
    InvalidInput,
    MalformedMessage,
    SparseSecAggError,
    WrongRound,
    WrongStage,
)
from sparsesecagg.protocol import Server, Stage
from sparsesecagg.protocol.server_state import ServerState, restore_server_state


def changed(run: Run, pod: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """Return the bytes of a server with some fields changed, of its first pod or of itself."""
    state = restore_server_state(run.server.save())
    pods = [msgspec.structs.replace(state.pods[0], **(pod or {})), *state.pods[1:]]
    return msgspec.msgpack.encode(msgspec.structs.replace(state, **{"pods": pods, **changes}))


@pytest.mark.parametrize("params", [small(), grouped(), with_roster(small)], ids=["full", "grouped", "roster"])
def test_a_restored_server_goes_on_where_it_was(params: Any) -> None:
    """With the same packages, the same past and the same rounds."""
    plain, restarted = Run(params), Run(params)
    for silent in ([1], [0], []):
        expected = plain.round(silent)
        roster = identities(params.clients)[0].roster if params.authenticated else None
        restarted.server = Server.restore(restarted.server.save(), roster)
        result = restarted.round(silent)
        assert (result.total == expected.total).all()
        assert (result.survivors, result.lost, result.round_number) == (
            expected.survivors,
            expected.lost,
            expected.round_number,
        )


def test_everything_that_is_saved_is_restored() -> None:
    run = Run(grouped(dropout=0.4), absent=[3])
    run.round(silent=[1, 2])
    restored = Server.restore(run.server.save())
    assert restored.save() == run.server.save()
    assert (restored.stage, restored.epoch_number, restored.round_number) == (Stage.DONE, 1, 1)
    assert [pod is None for pod in restored._epoch.pods] == [pod is None for pod in run.server._epoch.pods]
    for user in range(16):
        assert restored.lacking(user) == run.server.lacking(user)
    assert restored.dealt(2) == run.server.dealt(2) != set()


def test_a_server_is_saved_once_the_groups_are_drawn() -> None:
    run = Run(small(), set_up=False)
    with pytest.raises(WrongStage):
        run.server.save()


@pytest.mark.parametrize("stage", [Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK])
@pytest.mark.parametrize("answered", [False, True], ids=["nobody answers", "everybody answers"])
def test_a_server_that_stops_in_a_round_loses_that_round_and_nothing_else(stage: Stage, answered: bool) -> None:
    """As long as it was saved before the requests of the stage left."""
    params = with_roster(small)
    run = Run(params)
    run.round()
    run.begin().run_to(stage)
    saved = run.server.save()
    if answered:
        run.step()
    run.server = Server.restore(saved, identities(params.clients)[0].roster)
    result = run.round()
    assert result.round_number == 3
    assert len(result.survivors) == params.clients


def test_users_refuse_to_go_on_after_a_round_that_they_opened_and_that_was_forgotten() -> None:
    """A server that was saved too early."""
    run = Run(small())
    saved = run.server.save()
    run.round()
    run.server = Server.restore(saved)
    with pytest.raises(SparseSecAggError):
        run.round()


@pytest.mark.parametrize(
    "data", [b"", b"\xc0", b"rubbish", b"\x91" * 100_000, b"\x91\xa1\xff"], ids=["none", "nil", "text", "deep", "utf8"]
)
def test_other_bytes_are_no_saved_server(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Server.restore(data)


def test_damaged_pods_are_refused() -> None:
    run = Run(small())
    package = run.clients[0]._state.packages[1].message
    keys = run.server._epoch.pods[0].keys  # type: ignore[union-attr]
    order = Run(small()).begin().inbox[0]
    upload = Run(small()).begin().answer(0)
    for pod in ({"keys": order}, {"keys": package}, {"packages": [upload]}, {"packages": [keys]}):
        with pytest.raises(SparseSecAggError):
            Server.restore(changed(run, pod))
    for pods in ([], [*restore_server_state(run.server.save()).pods] * 2):
        with pytest.raises(MalformedMessage, match="not those of the draw"):
            Server.restore(changed(run, pods=pods))
    assert isinstance(restore_server_state(run.server.save()), ServerState)


class TestEpochNumbers:
    def test_an_epoch_that_is_over_is_not_advertised_for_again(self) -> None:
        run = Run(small(), set_up=False)
        client = run.clients[0]
        first = client.advertise_keys(3)
        assert client.advertise_keys(3) == client.advertise_keys() == first
        for number in (0, 1, 2):
            with pytest.raises(AlreadyAnswered, match=f"epoch {number} is over"):
                client.advertise_keys(number)
        assert client.advertise_keys(4) != first

    def test_who_has_joined_advertises_for_the_next_epoch_only(self) -> None:
        run = Run(small())
        client = run.clients[0]
        with pytest.raises(AlreadyAnswered, match="epoch 1 is over"):
            client.advertise_keys(1)
        kept = list(client._state.held_secrets())
        client.advertise_keys()
        assert client._state.epoch_number == 2
        assert not any(any(secret.reveal()) for secret in kept)
        assert (client._state.epoch, client._state.packages, client._state.secrets) == (b"", {}, {})

    def test_a_plain_run_has_one_epoch(self) -> None:
        run = Run(small())
        with pytest.raises(InvalidInput, match="roster"):
            run.server.begin_epoch()

    def test_epochs_of_a_server_only_go_up(self) -> None:
        run = Run(with_roster(small))
        for number in (0, 1):
            with pytest.raises(WrongRound):
                run.server.begin_epoch(number)
        run.server.begin_epoch()
        assert (run.server.epoch_number, run.server.stage) == (2, Stage.ADVERTISE_KEYS)
        run.server.begin_epoch(2)  # Nobody has drawn in it yet.
        run.server.begin_epoch(7)
        assert run.server.epoch_number == 7

    def test_a_second_epoch_draws_anew_and_rounds_go_on(self) -> None:
        run = Run(with_roster(small, clients=12))
        first = run.pod(0)
        assert run.round().round_number == 1
        run.server.begin_epoch()
        run.inbox = dict.fromkeys(run.clients, b"")
        run.set_up()
        assert run.pod(0) is not first
        result = run.round()
        assert (result.round_number, result.survivors) == (2, tuple(range(12)))

    def test_a_server_may_pass_over_what_users_know_of(self) -> None:
        run = Run(with_roster(small), set_up=False)
        run.server.catch_up(5, 2)
        run.server.catch_up(4, 1)
        run.set_up()
        assert run.round().round_number == 6
        assert run.clients[0].seen[0] == 6
        assert run.clients[0].seen[1] == 3
        run.server.begin_round()
        with pytest.raises(WrongStage):
            run.server.catch_up(9)
