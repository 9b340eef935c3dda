"""`handle` answers whatever comes, by the tables of transitions: all that a transport has to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from protocol.rounds import Run, small
from sparsesecagg.errors import DuplicateMessage, InvalidInput, ProtocolError, ThresholdNotMet, WrongBinding, WrongStage
from sparsesecagg.protocol import Client, Server, Stage
from sparsesecagg.protocol.stages import CLIENT_TRANSITIONS, SERVER_TRANSITIONS, Progress, after

SMALL = small(threshold=3)


def start(params: Any = SMALL) -> tuple[Server, dict[int, Client], dict[int, bytes]]:
    """Return a run whose users have all advertised their keys, with what the server sends then."""
    run = Run(params, set_up=False)
    answers: dict[int, bytes] = {}
    for user, client in run.clients.items():
        assert not answers, "the stage was closed before everybody had answered"
        answers = run.server.handle(user, client.advertise_keys())
    return run.server, run.clients, answers


def exchange(
    server: Server, clients: Mapping[int, Client], inbox: Mapping[int, bytes], update: Any
) -> dict[int, bytes]:
    """Let users answer; return what the server sends when the last one has."""
    outbox: dict[int, bytes] = {}
    for user, data in inbox.items():
        for answer in clients[user].handle(data, update):
            outbox |= server.handle(user, answer)
    return outbox


@pytest.mark.parametrize("params", [SMALL, small(roster=True)], ids=["plain", "roster"])
def test_rounds_need_handle_and_begin_round_alone(params: Any) -> None:
    server, clients, inbox = start(params)
    assert exchange(server, clients, inbox, None) == {}
    assert server.stage is Stage.SHARE_KEYS
    assert server.waiting_for == set()
    for number in (1, 2, 3):
        inbox = server.begin_round()
        requests = exchange(server, clients, inbox, np.full(params.dim, 0.5, np.float32))
        assert server.stage.name == "UNMASK"
        assert requests.keys() == clients.keys()
        assert exchange(server, clients, requests, None) == {}
        assert server.stage is Stage.SHARE_KEYS
        assert server.result is not None
        assert server.result.round_number == number
        np.testing.assert_allclose(server.result.mean()[server.result.updated], 0.5, atol=0.01)


def test_an_update_is_made_once_and_only_for_a_header_that_was_accepted() -> None:
    """A function is not called for keys, for UNMASK, for a header that is refused, or for one that comes again."""
    server, clients, inbox = start()
    made: list[int] = []

    def train() -> np.ndarray:
        assert clients[0].progress is Progress.ACCEPTED, "the header is on record before training starts"
        made.append(1)
        return np.zeros(SMALL.dim, np.float32)

    exchange(server, clients, inbox, train)
    headers = server.begin_round()
    with pytest.raises(WrongBinding):
        clients[0].handle(headers[0], train, context=b"m" * 32)
    assert made == []
    first = clients[0].handle(headers[0], train)
    again = clients[0].handle(headers[0], train)
    assert (again[0], made) == (first[0], [1])
    assert set(first) < set(again), "key packages may have been lost with the answer"


def test_what_is_sent_again_changes_nothing() -> None:
    server, clients, inbox = start()
    nothing = np.zeros(SMALL.dim, np.float32)
    packages = clients[1].handle(inbox[1], nothing)
    assert clients[1].handle(inbox[1], nothing) == packages
    for package in packages:
        server.handle(1, package)
        with pytest.raises(DuplicateMessage):
            server.handle(1, package)


def test_a_deadline_closes_a_stage_without_the_missing() -> None:
    server, clients, inbox = start()
    exchange(server, clients, inbox, None)
    headers = server.begin_round()
    del headers[4]
    assert exchange(server, clients, headers, np.zeros(SMALL.dim, np.float32)) == {}
    assert server.waiting_for == {4}
    requests = server.close_stage()
    exchange(server, clients, requests, None)
    assert server.result is not None
    assert server.result.survivors == (0, 1, 2, 3)
    assert server.waiting_for == set(), "its key package for round 2 came with the first"


def test_between_rounds_the_server_waits_for_key_packages() -> None:
    """Whoever has missed two rounds is told the server's, and is back."""
    run = Run(SMALL)
    for _ in range(2):
        run.begin().step(silent=[0]).run_to(Stage.SHARE_KEYS)
    assert run.server.waiting_for == {0}
    for package in run.clients[0].share_keys(run.server.round_number):
        run.server.handle(0, package)
    assert run.server.waiting_for == set()
    assert run.round().survivors == (0, 1, 2, 3, 4)


def test_keys_are_shared_for_the_client_s_own_round_unless_another_is_named() -> None:
    run = Run(SMALL, late=[0])
    assert run.clients[0].share_keys() == run.clients[0].share_keys(0, again=True)
    run.begin()
    with run.clients[1].one_record():
        run.answer(1)
        assert len(run.clients[1].share_keys()) == 1, "round 3; round 2 came before"


def test_a_bad_update_is_the_caller_s_mistake_and_leaves_the_round_open() -> None:
    server, clients, inbox = start()
    exchange(server, clients, inbox, None)
    headers = server.begin_round()
    with pytest.raises(InvalidInput, match="update must have shape"):
        clients[0].handle(headers[0], np.zeros(3, np.float32))
    assert clients[0].progress is Progress.ACCEPTED
    assert len(clients[0].handle(headers[0], np.zeros(SMALL.dim, np.float32))) == 2


def test_too_few_keys_leave_the_door_open() -> None:
    run = Run(SMALL, set_up=False)
    for user in (0, 1):
        run.server.handle(user, run.clients[user].advertise_keys())
    with pytest.raises(ThresholdNotMet):
        run.server.close_stage()
    assert run.server.stage is Stage.ADVERTISE_KEYS
    run.server.handle(2, run.clients[2].advertise_keys())
    assert len(run.server.close_stage()) == 3


class TestTables:
    def test_a_client_goes_where_its_table_says_and_nowhere_else(self) -> None:
        """At each place of its life, calls that the table does not have raise a typed error and change nothing."""
        run = Run(SMALL, set_up=False)
        client, later = run.clients[0], Run(SMALL).run_to(Stage.UNMASK)
        calls: dict[str, Callable[[], Any]] = {
            "join": lambda: client.join(run.inbox[0]),
            "share_keys": client.share_keys,
            "accept": lambda: client.accept(run.inbox[0]),
            "upload": lambda: client.upload(run.inbox[0], run.updates[0]),
            "unmask": lambda: client.unmask(run.inbox[0] if run.server.stage is Stage.UNMASK else later.inbox[0]),
            "advertise_keys": lambda: client.advertise_keys(client.epoch_number + 1),
        }
        visited: list[Progress] = []

        def go(name: str) -> None:
            visited.append(client.progress)
            # `upload` accepts the header itself; `join` takes the same message again.
            for other in calls.keys() - CLIENT_TRANSITIONS[client.progress].keys() - {"upload", "join"}:
                before = client._state
                with pytest.raises(ProtocolError):
                    calls[other]()
                assert client._state is before
            expected = after(CLIENT_TRANSITIONS, client.progress, name)
            calls[name]()
            assert client.progress is expected

        go("advertise_keys")
        for user in range(1, 5):
            run.server.receive(None, run.answer(user))
        run.server.receive(None, client.advertise_keys())
        run.inbox = run.server.close_stage()
        go("join")
        go("share_keys")
        run.join()
        for package in client.share_keys(again=True):
            run.server.receive(None, package)
        run.begin()
        go("accept")
        go("upload")
        run.step()
        go("unmask")
        assert set(visited) == set(Progress)

    def test_every_place_can_be_reached_and_left(self) -> None:
        for table, first in ((SERVER_TRANSITIONS, Stage.ADVERTISE_KEYS), (CLIENT_TRANSITIONS, Progress.NEW)):
            reached, todo = set(), [first]
            while todo:
                place = todo.pop()
                if place not in reached:
                    reached.add(place)
                    todo += table[place].values()  # type: ignore[index]
            assert reached == set(table)
            assert all(table.values())

    def test_calls_that_do_not_belong_are_named(self) -> None:
        with pytest.raises(WrongStage, match="got begin_round while the round is at UPLOAD"):
            after(SERVER_TRANSITIONS, Stage.UPLOAD, "begin_round")
