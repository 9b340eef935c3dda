"""Transport: who is asked, who counts as having answered, for how long one waits, and which node is which user."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
from flwr.app import Message, RecordDict

from flower.local_grid import LocalGrid, Silent, training_app
from sparsesecagg.flower import UnprovenNode
from sparsesecagg.flower.transport import PatientGrid, Seats, by_request

APP = training_app(lambda p, a, r: a, mods=[])


class Echo(LocalGrid):
    """Nodes that answer with an empty message, except those told to be silent."""

    def __init__(self, nodes: int, silent: Iterable[int] = ()) -> None:
        super().__init__(APP, nodes)
        self.silent = set(silent)
        self.app = self.answer  # type: ignore[assignment]

    def answer(self, message: Message, context: Any) -> Message:
        if message.metadata.dst_node_id in self.silent:
            raise Silent
        return Message(RecordDict(), reply_to=message)


def requests(*nodes: int, ttl: float = 100) -> dict[int, Message]:
    return {node: Message(RecordDict(), node, "train", ttl=ttl) for node in nodes}


def test_all_answers_are_returned_by_node() -> None:
    replies = PatientGrid(Echo(3)).exchange(requests(100, 101, 102), timeout=5)
    assert {node: reply.metadata.src_node_id for node, reply in replies.items()} == {100: 100, 101: 101, 102: 102}


def test_a_silent_node_costs_the_timeout_and_is_busy_afterwards() -> None:
    grid = PatientGrid(Echo(3, silent=[101]))
    start = time.monotonic()
    replies = grid.exchange(requests(100, 101, 102), timeout=0.3)
    assert 0.3 <= time.monotonic() - start < 3
    assert set(replies) == {100, 102}
    assert grid.busy_nodes() == {101}


def test_a_busy_node_is_left_out_and_costs_no_time() -> None:
    grid = PatientGrid(Echo(3, silent=[101]))
    grid.exchange(requests(101), timeout=0.05)
    start = time.monotonic()
    replies = grid.exchange(requests(100, 101), timeout=30)
    assert set(replies) == {100}
    assert time.monotonic() - start < 5
    assert [node for node, _ in grid.sent] == [101, 100]


def test_a_message_that_has_expired_keeps_nobody_busy() -> None:
    grid = PatientGrid(Echo(3, silent=[101]))
    grid.exchange(requests(101, ttl=0.1), timeout=0.05)
    time.sleep(0.1)
    assert grid.busy_nodes() == set()


def test_a_grid_that_can_not_send_some_messages_loses_no_others() -> None:
    """Some return None in their place, some leave them out."""

    class Lossy(Echo):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            kept = [message for message in messages if message.metadata.dst_node_id != 101]
            return super().push_messages(kept)

    class Honest(Echo):
        def push_messages(self, messages: Iterable[Message]) -> Any:
            ids = super().push_messages(messages)
            return [
                None if message.metadata.dst_node_id == 101 else key for message, key in zip(messages, ids, strict=True)
            ]

    for grid in (Lossy(3), Honest(3)):
        start = time.monotonic()
        assert set(PatientGrid(grid).exchange(requests(100, 101, 102), timeout=30)) == {100, 102}
        assert time.monotonic() - start < 5


def test_nobody_to_ask_is_no_reason_to_wait() -> None:
    assert PatientGrid(Echo(3)).exchange({}, timeout=None) == {}


class TestSorting:
    def exchange(self) -> tuple[dict[int, Message], list[Message]]:
        grid, asked = Echo(3), requests(100, 101, 102)
        return asked, list(grid.pull_messages(grid.push_messages(asked.values())))

    def test_replies_count_for_the_node_that_was_asked_whatever_they_claim(self) -> None:
        asked, replies = self.exchange()
        replies[0].metadata.__dict__["_src_node_id"] = 102
        sorted_replies, strangers = by_request(asked, replies)
        assert sorted_replies[100] is replies[0]
        assert strangers == 0

    def test_second_replies_and_replies_to_nothing_are_counted(self) -> None:
        asked, replies = self.exchange()
        stray, _ = self.exchange()[1][:2]
        stray.metadata.__dict__["_reply_to_message_id"] = "elsewhere"
        sorted_replies, strangers = by_request(asked, [*replies, replies[1], stray])
        assert set(sorted_replies) == {100, 101, 102}
        assert strangers == 2


@pytest.mark.parametrize("timeout", [0.0, 0.05])
def test_an_exchange_looks_at_least_once(timeout: float) -> None:
    assert set(PatientGrid(Echo(2)).exchange(requests(100, 101), timeout=timeout)) == {100, 101}


class TestSeats:
    def test_a_user_has_one_node_until_that_is_gone(self) -> None:
        seats = Seats()
        seats.take(2, 104, present={104, 105})
        with pytest.raises(UnprovenNode, match="user 2 of the roster is node 104, which is present"):
            seats.take(2, 105, present={104, 105})
        seats.take(2, 105, present={105})
        assert seats.among({104, 105}) == {2: 105}
        assert seats.user_of.get(104) is None

    def test_a_node_has_one_user(self) -> None:
        seats = Seats()
        seats.take(2, 104, present={104})
        seats.take(3, 104, present={104})
        assert seats.among({104}) == {3: 104}
        assert seats.user_of.get(104) == 3

    def test_proving_again_changes_nothing(self) -> None:
        seats = Seats()
        for _ in range(2):
            seats.take(2, 104, present={104})
        assert seats.among({104, 105}) == {2: 104}
        assert seats.among({105}) == {}
