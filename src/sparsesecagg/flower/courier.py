"""Messages out, replies in: one exchange with many nodes, bounded in time.

Flower's own `send_and_receive` polls every three seconds, this one faster; `PatientGrid` puts it under Flower's loop. A
reply counts for the node that was asked, whatever sender it claims: errors carry false ones. A node that has not
answered keeps its message outstanding and is not asked again until it has answered or the message has expired, because
a second message to a busy node would only be refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

SLOWEST_POLL = 3.0
"""Flower's own pause between two looks for replies."""


@dataclass
class Courier:
    """Sends messages to nodes and collects the replies."""

    poll_seconds: float = 0.2
    _outstanding: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By message id: the node that has not answered, and when the message expires."""

    def exchange(self, grid: Grid, messages: Mapping[int, Message], timeout: float | None) -> dict[int, Message]:
        """Send each node its message and return the replies that arrive in time, by node.

        Nodes that still owe an answer are left out, which makes them dropouts of this exchange.
        """
        busy = self.busy_nodes(grid)
        pending = self._push(grid, {node: message for node, message in messages.items() if node not in busy})
        replies: dict[int, Message] = {}
        start = time.monotonic()
        deadline = float("inf") if timeout is None else start + timeout
        while pending:
            for reply in grid.pull_messages(list(pending)):
                node = pending.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    replies[node] = reply
            now = time.monotonic()
            if not pending or now >= deadline:
                break
            # Who has waited long for training need not look five times a second.
            pause = min(SLOWEST_POLL, max(self._pause(timeout), (now - start) / 20))
            time.sleep(min(pause, deadline - now))
        for message_id, node in pending.items():
            sent = messages[node].metadata
            self._outstanding[message_id] = node, sent.created_at + sent.ttl
        return replies

    def _pause(self, timeout: float | None) -> float:
        return self.poll_seconds if timeout is None else min(self.poll_seconds, timeout / 20)

    def busy_nodes(self, grid: Grid) -> set[int]:
        """Return the nodes that still owe an answer; late answers are taken and thrown away."""
        now = time.time()
        self._outstanding = {key: owed for key, owed in self._outstanding.items() if owed[1] > now}
        if self._outstanding:
            for reply in grid.pull_messages(list(self._outstanding)):
                self._outstanding.pop(reply.metadata.reply_to_message_id, None)
        return {node for node, _ in self._outstanding.values()}

    def _push(self, grid: Grid, messages: Mapping[int, Message]) -> dict[str, int]:
        """Send the messages; return the node of each message id. A message that can't be sent is a dropout."""
        if not messages:
            return {}
        ids = list(grid.push_messages(list(messages.values())))
        if len(ids) == len(messages):
            return {key: node for key, node in zip(ids, messages, strict=True) if key}
        # Some grids leave out what they could not send; then the ids that they wrote into the messages tell.
        sent = set(ids)
        written = {message.metadata.message_id: node for node, message in messages.items()}
        return {key: node for key, node in written.items() if key in sent}


def by_node(messages: Iterable[Message]) -> dict[int, Message]:
    """Return messages by the node that they go to."""
    return {message.metadata.dst_node_id: message for message in messages}


def by_request(requests: Mapping[int, Message], replies: Iterable[Message]) -> tuple[dict[int, Message], int]:
    """Sort replies that somebody else has collected by the node that was asked; count those that fit no request.

    A second reply to one request does not fit. Where a grid gives messages no ids, the sender decides.
    """
    asked = {message.metadata.message_id: node for node, message in requests.items()}
    nameless = len(asked) != len(requests) or "" in asked
    sorted_replies: dict[int, Message] = {}
    strangers = 0
    for reply in replies:
        node = reply.metadata.src_node_id if nameless else asked.get(reply.metadata.reply_to_message_id)
        if node is None or node not in requests or node in sorted_replies:
            strangers += 1
        else:
            sorted_replies[node] = reply
    return sorted_replies, strangers


class PatientGrid(Grid):
    """Passes everything on to another grid, but collects replies itself."""

    def __init__(self, inner: Grid, courier: Courier) -> None:
        self.inner = inner
        self._courier = courier

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send the messages and return the replies that arrive in time."""
        sent = list(messages)
        messages_by_node = by_node(sent)
        if len(messages_by_node) != len(sent):
            return self.inner.send_and_receive(sent, timeout=timeout)
        return list(self._courier.exchange(self.inner, messages_by_node, timeout).values())

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on."""
        return self.inner.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on."""
        return self.inner.pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Pass on."""
        return self.inner.get_node_ids()

    def set_run(self, run: Any) -> None:
        """Pass on."""
        self.inner.set_run(run)

    @property
    def run(self) -> Any:
        """The run that the inner grid works for."""
        return self.inner.run

    def create_message(self, *args: Any, **named: Any) -> Message:
        """Pass on."""
        return self.inner.create_message(*args, **named)

    def __getattr__(self, name: str) -> Any:
        """Pass on what Flower's grids have beyond the interface."""
        return getattr(self.inner, name)
