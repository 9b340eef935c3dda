"""Carrying messages between simulated users and the server: on the clock, and in sight of whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from sparsesecagg.errors import PolicyViolation, RoundFailed, RoundRefused
from sparsesecagg.protocol.client import Client
from sparsesecagg.protocol.server import Server
from sparsesecagg.protocol.stages import STAGES, Stage
from sparsesecagg.simulate.clock import Clock
from sparsesecagg.simulate.observer import Observer

Drops = Mapping[int, Stage]
"""At which stage a user drops out: it sends neither that stage's message nor later ones of the round."""
Found = TypeVar("Found")


class Delivery:
    """The transport of a set-up or of one round."""

    def __init__(self, server: Server, observer: Observer, drops: Drops | None = None) -> None:
        self.clock = Clock()
        self._server, self._observer, self._drops = server, observer, drops or {}
        self._refusals: list[tuple[Stage, PolicyViolation]] = []

    def is_there(self, user: int, stage: Stage) -> bool:
        """Tell whether a user has not dropped out yet."""
        return user not in self._drops or STAGES.index(self._drops[user]) > STAGES.index(stage)

    def at_server(self, stage: Stage, act: Callable[[], Found]) -> Found:
        """Let the server do something."""
        with self.clock.server(stage):
            return act()

    def to_client(self, stage: Stage, user: int, data: bytes, act: Callable[[bytes], Found]) -> Found:
        """Let a user read a message."""
        self._observer.to_client(stage, user, data)
        with self.clock.client(stage):
            return act(data)

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:
        """Let the server take a message."""
        self._observer.to_server(stage, user, data)
        self.at_server(stage, partial(self._server.receive, data, user))

    def exchange(self, stage: Stage, inbox: Mapping[int, bytes], answer: Callable[[int, bytes], bytes]) -> None:
        """Let everybody who is there answer its message. Who refuses has dropped out, as the server sees it."""
        for user, request in inbox.items():
            if self.is_there(user, stage):
                try:
                    self.to_server(stage, user, self.to_client(stage, user, request, partial(answer, user)))
                except PolicyViolation as refusal:
                    self._refusals.append((stage, refusal))

    def packages(self, client: Client) -> list[bytes]:
        """Return the key packages that a user makes for the next rounds."""
        with self.clock.client(Stage.SHARE_KEYS):
            return client.share_keys(self._server.round_number)

    def share_keys(self, user: int, packages: list[bytes]) -> None:
        """Let the server take key packages."""
        for package in packages:
            self.to_server(Stage.SHARE_KEYS, user, package)

    @contextmanager
    def naming_refusals(self) -> Iterator[None]:
        """Name the users' refusals where a round fails because of them."""
        try:
            yield
        except RoundFailed as failure:
            if self._refusals:
                stage, first = self._refusals[0]
                raise RoundRefused(len(self._refusals), stage.name, str(first)) from failure
            raise
