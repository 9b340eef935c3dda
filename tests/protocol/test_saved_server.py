"""A server that is written down between two rounds: it goes on where it was, and damaged bytes are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.rounds import Run, grouped, identities, small
from sparsesecagg.errors import (
    InvalidInput,
    MalformedMessage,
    SparseSecAggError,
    WrongStage,
)
from sparsesecagg.protocol import Server, Stage
from sparsesecagg.protocol.server import ServerState


def state_of(run: Run) -> ServerState:
    return msgspec.msgpack.decode(run.server.save(), type=ServerState)


def changed(run: Run, group: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """Return the bytes of a server with some fields changed, of its first group or of itself."""
    state = state_of(run)
    assert state.groups[0] is not None
    groups = [msgspec.structs.replace(state.groups[0], **(group or {})), *state.groups[1:]]
    return msgspec.msgpack.encode(msgspec.structs.replace(state, **{"groups": groups, **changes}))


@pytest.mark.parametrize("params", [small(), grouped(), small(roster=True)], ids=["plain", "groups", "roster"])
def test_a_restored_server_goes_on_where_it_was(params: Any) -> None:
    """With the same packages and the same rounds."""
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
    run = Run(grouped(), absent=[3])
    run.round(silent=[1, 2])
    run.server.excluded, run.server.accusers = {5: "for a reason"}, {5: {1, 2}}
    restored = Server.restore(run.server.save())
    assert restored.save() == run.server.save()
    assert (restored.stage, restored.epoch_number, restored.round_number) == (Stage.SHARE_KEYS, 1, 1)
    for user in range(12):
        assert restored.lacking(user) == run.server.lacking(user)
    assert restored.shared(2) == run.server.shared(2) != set()
    assert (restored.excluded, restored.accusers) == (run.server.excluded, run.server.accusers)


def test_a_later_epoch_is_restored_as_such() -> None:
    run = Run(grouped())
    run.server.begin_epoch(3)
    for client in run.clients.values():
        run.server.receive(None, client.advertise_keys(3))
    run.server.close_stage()
    restored = Server.restore(run.server.save())
    assert restored.epoch_number == 3
    assert [group.users.tolist() for group in restored.groups.groups] == [
        group.users.tolist() for group in run.server.groups.groups
    ]


def test_a_group_that_takes_no_part_stays_away() -> None:
    params = grouped()
    gone = Run(params, set_up=False).server.groups.groups[0].users.tolist()[:3]
    run = Run(params, absent=gone)
    run.server = Server.restore(run.server.save())
    assert set(run.round().lost) == {0}


def test_a_server_is_saved_once_the_groups_are_drawn() -> None:
    run = Run(small(), set_up=False)
    with pytest.raises(WrongStage):
        run.server.save()


@pytest.mark.parametrize("stage", [Stage.UPLOAD, Stage.UNMASK])
@pytest.mark.parametrize("answered", [False, True], ids=["nobody answers", "everybody answers"])
def test_a_server_that_stops_in_a_round_loses_that_round_and_nothing_else(stage: Stage, answered: bool) -> None:
    """As long as it was saved before the requests of the stage left."""
    params = small(roster=True)
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


def test_arrays_nested_without_end_are_no_saved_server() -> None:
    """Behind a state that is whole, where they are only skipped."""
    saved = Run(small()).server.save()
    assert saved[0] == 0x96  # An array of six.
    with pytest.raises(MalformedMessage):
        Server.restore(b"\x97" + saved[1:] + b"\x91" * 100_000 + b"\xc0")


def test_damaged_groups_are_refused() -> None:
    run = Run(small())
    package = run.clients[0]._state.packages[1].for_upload().message
    keys = run.server._epoch.groups[0].keys
    header = Run(small()).begin().inbox[0]
    upload = Run(small()).begin().answer(0)
    for group in ({"keys": header}, {"keys": package}, {"packages": [upload]}, {"packages": [keys]}):
        with pytest.raises(SparseSecAggError):
            Server.restore(changed(run, group))
    for group in ({"packages": [upload]}, {"packages": [run.clients[0].advertise_keys()]}):
        with pytest.raises(MalformedMessage, match="a saved key package is not one"):
            Server.restore(changed(run, group))
    for groups in ([], [*state_of(run).groups] * 2):
        with pytest.raises(MalformedMessage, match="not those of the parameters"):
            Server.restore(changed(run, groups=groups))


@pytest.mark.parametrize("number", [-1, 1 << 63])
def test_numbers_that_no_run_has_are_refused(number: int) -> None:
    run = Run(small())
    for saved in (changed(run, epoch_number=number), changed(run, round_number=number)):
        with pytest.raises(MalformedMessage):
            Server.restore(saved)


def test_the_roster_is_given_again() -> None:
    run = Run(small(roster=True))
    with pytest.raises(InvalidInput, match="roster must be given"):
        Server.restore(run.server.save())
    assert Server.restore(run.server.save(), identities(5)[0].roster).groups == run.server.groups
