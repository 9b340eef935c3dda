"""Messages out, replies in: a grid that collects replies itself, and which node is which user.

Flower's own `send_and_receive` polls every three seconds, this one faster. A reply counts for the node that was asked,
whatever sender it claims: errors carry false ones. A node that has not answered keeps its message outstanding and is
not asked again until it has answered or the message has expired, because a second message to a busy node would only be
refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from sparsesecagg.flower.errors import UnprovenNode

_LOG = logging.getLogger("flwr")
_POLL, _SLOWEST_POLL = 0.2, 3.0  # The latter is Flower's own pause between two looks for replies.
Messages = Mapping[int, Message]
"""By the node that they go to, or come from."""


class PatientGrid:
    """Passes everything on to another grid, but collects replies itself."""

    def __init__(self, inner: Grid) -> None:
        self.inner = inner
        self._owed: dict[str, tuple[int, float]] = {}
        """By message id: the node that has not answered, and when the message expires."""

    def __getattr__(self, name: str) -> Any:
        """Pass on what this class has not."""
        return getattr(self.inner, name)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send the messages and return the replies that arrive in time, as every grid does."""
        sent = list(messages)
        by_node = {message.metadata.dst_node_id: message for message in sent}
        if len(by_node) != len(sent):
            return self.inner.send_and_receive(sent, timeout=timeout)
        return list(self.exchange(by_node, timeout).values())

    def exchange(self, messages: Messages, timeout: float | None) -> dict[int, Message]:
        """Send each node its message and return the replies that arrive in time, by node.

        Nodes that still owe an answer are left out, which makes them dropouts of this exchange.
        """
        busy, replies = self.busy_nodes(), dict[int, Message]()
        asked = {node: message for node, message in messages.items() if node not in busy}
        sent = set(self.inner.push_messages(list(asked.values()))) if asked else set()
        # Grids write ids into the messages; one that could not be sent is a dropout.
        ids = {message.metadata.message_id: node for node, message in asked.items()}
        pending = {key: node for key, node in ids.items() if key in sent}
        start = time.monotonic()
        deadline = float("inf") if timeout is None else start + timeout
        while pending:
            for reply in self.inner.pull_messages(list(pending)):
                node = pending.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    replies[node] = reply
            now = time.monotonic()
            if not pending or now >= deadline:
                break
            # Who has waited long for training need not look five times a second.
            pause = min(_SLOWEST_POLL, max(min(_POLL, (deadline - start) / 20), (now - start) / 20))
            time.sleep(min(pause, deadline - now))
        for key, node in pending.items():
            metadata = messages[node].metadata
            self._owed[key] = node, metadata.created_at + metadata.ttl
        return replies

    def busy_nodes(self) -> set[int]:
        """Return the nodes that still owe an answer; late answers are taken and thrown away."""
        now = time.time()
        self._owed = {key: owed for key, owed in self._owed.items() if owed[1] > now}
        for reply in self.inner.pull_messages(list(self._owed)) if self._owed else ():
            self._owed.pop(reply.metadata.reply_to_message_id, None)
        return {node for node, _ in self._owed.values()}

    def wait_for_nodes(self, count: int, timeout: float) -> None:
        """Wait until so many nodes are there, or time is up: a strategy may begin with two."""
        deadline, told = time.monotonic() + timeout, False
        while (there := len(list(self.inner.get_node_ids()))) < count and time.monotonic() < deadline:
            if not told:
                hint = 'in a simulation: --federation-config "num-supernodes=10"'
                _LOG.warning("SecAgg: %d nodes are there, waiting up to %g s for %d (%s)", there, timeout, count, hint)
            told = True
            time.sleep(min(1.0, timeout / 10))


def by_request(requests: Messages, replies: Iterable[Message]) -> tuple[dict[int, Message], int]:
    """Sort replies that somebody else has collected by the node that was asked; count those that fit no request.

    A second reply to one request does not fit.
    """
    asked = {message.metadata.message_id: node for node, message in requests.items()}
    found, strangers = dict[int, Message](), 0
    for reply in replies:
        node = asked.pop(reply.metadata.reply_to_message_id, None)
        if node is None:
            strangers += 1
        else:
            found[node] = reply
    return found, strangers


class Seats:
    """Which node is which user, for as long as the run lasts: given out in a plain run, proven with a roster."""

    def __init__(self, taken: Sequence[tuple[int, int]] = ()) -> None:
        self.node_of: dict[int, int] = dict(taken)
        self.user_of = {node: user for user, node in taken}

    def among(self, nodes: Collection[int]) -> dict[int, int]:
        """Return the node of each user that is one of these."""
        return {self.user_of[node]: node for node in nodes if node in self.user_of}

    def take(self, user: int, node: int, present: Collection[int]) -> None:
        """Note that a node is a user.

        A user has one node. Another one takes its place only when that node is gone, as after a restart.
        """
        holder = self.node_of.get(user, node)
        if holder != node and holder in present:
            raise UnprovenNode(node, f"user {user} of the roster is node {holder}, which is present")
        self.user_of.pop(holder, None)
        if node in self.user_of:  # A node that is enrolled anew under another number leaves its old one.
            del self.node_of[self.user_of[node]]
        self.node_of[user], self.user_of[node] = node, user
