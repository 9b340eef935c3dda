"""Carrying messages between simulated users and the server, and all that is watched and measured on the way."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import PolicyViolation, RoundFailed, RoundRefused
from sparsesecagg.patterns.base import Index, Trace, Update
from sparsesecagg.protocol.client import Client
from sparsesecagg.protocol.combine import Result
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.server import Server
from sparsesecagg.protocol.stages import STAGES, Stage

Drops = Mapping[int, Stage]
"""At which stage a user drops out: it sends neither that stage's message nor later ones of the round."""
Updates = Sequence[Update] | Callable[[int], Update]
"""The users' vectors, or a function that makes them when they are needed."""
ROUND = (Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK)
Given = ParamSpec("Given")
Found = TypeVar("Found")


class Observer:
    """Told what travels, as it travels. Override what you need."""

    def to_client(self, stage: Stage, user: int, data: bytes) -> None:
        """The server's message reaches a client."""

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:
        """A client's message reaches the server."""


@dataclass
class Transcript(Observer):
    """Every message of a run, as the server saw it: what an auditor or an attacker starts from."""

    sent: list[tuple[Stage, int, bytes]] = field(default_factory=list)
    """By clients."""
    received: list[tuple[Stage, int, bytes]] = field(default_factory=list)

    def to_client(self, stage: Stage, user: int, data: bytes) -> None:
        """Keep the message."""
        self.received.append((stage, user, data))

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:
        """Keep the message."""
        self.sent.append((stage, user, data))


@dataclass(frozen=True)
class Outcome:
    """A completed round in one process: the server's result, and what only a simulation can know."""

    result: Result
    exact: bool
    """The aggregate equals the plain sum of the integers of all users of the groups that were opened."""
    clipped: int
    """Values clipped by the survivors together."""
    client_seconds: Mapping[str, float]
    """By stage: mean per client that took part."""
    server_seconds: Mapping[str, float]


class Delivery:
    """The transport of a set-up or of one round, and its clock."""

    def __init__(self, server: Server, observer: Observer, drops: Drops | None = None) -> None:
        self._server, self._observer, self._drops = server, observer, drops or {}
        self._plain = PlainSum(server.params)
        self._refusals: list[tuple[Stage, PolicyViolation]] = []
        self._client_seconds: dict[Stage, list[float]] = defaultdict(list)
        self._server_seconds: dict[Stage, list[float]] = defaultdict(list)
        self._inside = 0.0

    def is_there(self, user: int, stage: Stage) -> bool:
        """Tell whether a user has not dropped out yet."""
        return user not in self._drops or STAGES.index(self._drops[user]) > STAGES.index(stage)

    def at_server(self, stage: Stage, act: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """Let the server do something."""
        with self._timed(self._server_seconds[stage]):
            return act(*given, **named)

    def at_client(self, stage: Stage, act: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """Let a user do something."""
        with self._timed(self._client_seconds[stage]):
            return act(*given, **named)

    def to_client(self, stage: Stage, user: int, data: bytes, act: Callable[[bytes], Found]) -> Found:
        """Let a user read a message."""
        self._observer.to_client(stage, user, data)
        return self.at_client(stage, act, data)

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:
        """Let the server take a message."""
        self._observer.to_server(stage, user, data)
        self.at_server(stage, self._server.receive, user, data)

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
        return self.at_client(Stage.SHARE_KEYS, client.share_keys, self._server.round_number)

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

    @contextmanager
    def _timed(self, seconds: list[float]) -> Iterator[None]:
        """Time a block, or what it decorates; what runs inside another is not counted twice."""
        outside, self._inside, start = self._inside, 0.0, time.perf_counter()
        yield
        taken = time.perf_counter() - start
        seconds.append(taken - self._inside)
        self._inside = outside + taken

    def client_seconds(self, stages: tuple[Stage, ...]) -> dict[str, float]:
        """Return the mean of the clients that took part, by stage, and the sum of these."""
        means = {stage.name: float(np.mean(self._client_seconds[stage] or [0.0])) for stage in stages}
        return {**means, "total": sum(means.values())}

    def server_seconds(self, stages: tuple[Stage, ...]) -> dict[str, float]:
        """Return the server's time by stage, and its sum."""
        totals = {stage.name: sum(self._server_seconds[stage]) for stage in stages}
        return {**totals, "total": sum(totals.values())}

    def update(self, updates: Updates, user: int) -> Update:
        """Return a user's update; making it is the application's work, and off the clock."""
        with self._timed([]):
            return updates(user) if callable(updates) else updates[user]

    def trace(self, user: int) -> Trace:
        """Return what notes a user's integers for the plain sum, off the clock."""
        return self._timed([])(partial(self._plain.note, self._server.groups.of(user).number))

    def outcome(self, clients: Mapping[int, Client]) -> Outcome:
        """Return what came of the round."""
        result = self._server.result
        if result is None:
            raise RuntimeError("UNMASK was closed without a result")
        return Outcome(
            result=result,
            exact=bool(np.array_equal(self._plain.total(result.lost), result.total)),
            clipped=sum(clients[user].clipped for user in result.survivors),
            client_seconds=self.client_seconds(ROUND),
            server_seconds=self.server_seconds(ROUND),
        )


class PlainSum:
    """The users' integers without any mask, group by group. Simulated users are honest: all that upload are in."""

    def __init__(self, params: Parameters) -> None:
        self._dim, self._public = params.dim, params.shape.protects
        self._pieces: dict[tuple[int, int], tuple[slice | NDArray[Any], NDArray[Any]]] = {}
        """By group and first coordinate. Where users draw their own coordinates, one piece is the whole vector."""

    def note(self, group: int, index: Index, integers: NDArray[Any]) -> None:
        """Add one user's integers. All users of a group have the same coordinates if they are public."""
        if not len(integers):
            return
        if not self._public:
            if not self._pieces:
                self._pieces[group, 0] = slice(None), np.zeros(self._dim, np.int64)
            self._pieces[group, 0][1][index] += integers
            return
        first = index.start if isinstance(index, slice) else int(index[0])
        if (group, first) in self._pieces:
            self._pieces[group, first][1][:] += integers
        else:
            # As short as can be, because there are as many as groups: a group's sum fits where one user's values do.
            where = index if isinstance(index, slice) else index.astype(np.min_scalar_type(self._dim))
            self._pieces[group, first] = where, integers.copy()

    def total(self, lost: Collection[int]) -> NDArray[np.int64]:
        """Return the sum over the groups that were opened."""
        total = np.zeros(self._dim, np.int64)
        for (group, _), (index, integers) in self._pieces.items():
            if group not in lost:
                total[index] += integers
        return total
