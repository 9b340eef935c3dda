"""A Grid that sends and receives through a courier: for Flower's own loop, which waits three seconds between looks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from sparsesecagg.engines.flower.courier import Courier
from sparsesecagg.engines.flower.records import is_ours


class PatientGrid(Grid):
    """Passes everything on to another grid, but collects replies itself."""

    def __init__(self, inner: Grid, courier: Courier, upload_timeout: float | None) -> None:
        self.inner = inner
        self._courier = courier
        self._upload_timeout = upload_timeout

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send the messages and return the replies that arrive in time."""
        sent = list(messages)
        by_node = {message.metadata.dst_node_id: message for message in sent}
        if len(by_node) != len(sent):
            return self.inner.send_and_receive(sent, timeout=timeout)
        if sent and is_ours(sent[0].content) and self._upload_timeout is not None:
            timeout = self._upload_timeout if timeout is None else min(timeout, self._upload_timeout)
        return list(self._courier.exchange(self.inner, by_node, timeout).values())

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on."""
        return self.inner.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on."""
        return self.inner.pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Pass on."""
        return self.inner.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """Pass on."""
        return self.inner.get_nodes()

    def set_run(self, run: Any) -> None:
        """Pass on."""
        self.inner.set_run(run)

    @property
    def run(self) -> Any:
        """The run that the inner grid works for."""
        return self.inner.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Pass on."""
        return self.inner.create_message(content, message_type, dst_node_id, group_id, ttl)
