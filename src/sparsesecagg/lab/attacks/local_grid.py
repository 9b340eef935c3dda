"""A Grid of Flower in one process: every node is a ClientApp and a Context, messages travel as Flower's own objects."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

RUN = 7
SERVER = 1

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN, SERVER


class Silent(Exception):
    """Raised by a fault: the node never answers this message."""


Before = Callable[[int, Message], None]
"""Told the node and the message; may raise `Silent`, or anything else as the ClientApp would."""
After = Callable[[int, Message], list[Message]]  # Returns what the server gets to see instead of a reply.


class LocalGrid(Grid):
    """Nodes with ids 100, 101, … that run `app` when their reply is pulled."""

    def __init__(
        self,
        app: ClientApp,
        nodes: int,
        *,
        before: Before | None = None,
        after: After | None = None,
        node_config: Callable[[int], dict[str, Any]] | None = None,
        run_config: dict[str, Any] | None = None,
    ) -> None:
        self.app = app
        self.contexts = {
            100 + index: Context(
                run_id=RUN,
                node_id=100 + index,
                node_config={"partition-id": index, "num-partitions": nodes, **(node_config or (lambda _: {}))(index)},
                state=RecordDict(),
                run_config=run_config or {},
            )
            for index in range(nodes)
        }
        self.online = set(self.contexts)
        self.before, self.after = before, after
        self.sent: list[tuple[int, Message]] = []  # Every message that went out, with its node.
        self.replied: list[tuple[int, Message]] = []  # Every reply that came back.
        self._waiting: dict[str, Message] = {}
        self._ready: dict[str, list[Message]] = {}
        self._numbers = itertools.count(1)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            key = f"message-{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = key
            travelled = travel(message)
            travelled.metadata.__dict__["_message_id"] = key
            self._waiting[key] = travelled
            self.sent.append((message.metadata.dst_node_id, travelled))
            ids.append(key)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        keys = list(message_ids)
        for key in keys:
            if key in self._waiting:
                self._ready[key] = self._run(self._waiting.pop(key))
        return [reply for key in keys for reply in self._ready.pop(key, [])]

    def _run(self, message: Message) -> list[Message]:
        node = message.metadata.dst_node_id
        if node not in self.online:
            return []
        try:
            if self.before:
                self.before(node, message)
            reply = self.app(message, self.contexts[node])
        except Silent:
            return []
        except Exception as error:
            reply = Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)
        reply = travel(reply)
        self.replied.append((node, reply))
        return self.after(node, reply) if self.after else [reply]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(list(messages)))

    def get_node_ids(self) -> Iterable[int]:
        return sorted(self.online)

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError


def travel(message: Message) -> Message:
    """Return the message as it comes out at the other end of a network."""
    contents = {key: item.deflate() for key, item in get_all_nested_objects(message).items()}
    copy = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(copy, Message)  # noqa: S101  # It was one before.
    return copy


def stage_of(message: Message) -> str:
    """Return the stage that a message belongs to; nothing for an error."""
    return str(message.content["secagg"]["stage"]) if message.has_content() else ""
