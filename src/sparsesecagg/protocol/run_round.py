"""A whole round on one page, in one process: every client, the server, and the dropouts between them.

This is the protocol as one reads it. Real deployments run the same `Client` and `Server` in an engine.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.errors import PolicyViolation, RoundRefused
from sparsesecagg.protocol.client import Client, Entropy
from sparsesecagg.protocol.masked_update import Update
from sparsesecagg.protocol.parameters import RoundParameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.result import Result
from sparsesecagg.protocol.server import Server
from sparsesecagg.protocol.stages import STAGES, STAGES_WITH_ROSTER, Stage

Updates = Sequence[Update] | Callable[[int], Update]
EntropyOf = Callable[[int], Entropy]
Progress = Callable[[Stage, int], None]
"""Told after each client's message."""


@dataclass
class Transcript:
    """Every message of a round, as the server saw it: what an auditor or an attacker starts from."""

    to_server: list[tuple[Stage, int, bytes]] = field(default_factory=list)
    to_clients: list[tuple[Stage, int, bytes]] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """A completed round in one process: the server's result, and what only a simulation can know."""

    result: Result
    exact: bool
    """The aggregate equals the plain sum of the survivors' quantised values."""
    clipped: int
    """Values clipped by the survivors together."""
    client_seconds: Mapping[str, float]
    """By stage: mean per client that took part."""
    server_seconds: Mapping[str, float]


def run_round(
    params: RoundParameters,
    updates: Updates,
    *,
    weights: Sequence[int] | None = None,
    drops: Mapping[int, Stage] | None = None,
    policy: Policy | None = None,
    entropy_of: EntropyOf | None = None,
    identities: Sequence[Identity] | None = None,
    transcript: Transcript | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run one round among `params.clients` users and return its outcome.

    `updates` are the users' vectors, or a function that makes them when they are needed. `drops` says at which stage a
    user falls silent: it does not send that stage's message. `entropy_of` gives each user its source of randomness;
    the system's by default. `identities` belong to an authenticated round.
    """
    drops = drops or {}
    clock = _Clock()
    server = Server(params)
    users = range(params.clients)
    clients = {
        user: Client(
            user,
            params,
            policy,
            entropy_of(user) if entropy_of else os.urandom,
            identities[user] if identities else None,
        )
        for user in users
    }
    plain = np.zeros(params.layout.blocks * params.width, np.int64)
    refusals: list[PolicyViolation] = []

    def alive(user: int, stage: Stage) -> bool:
        return user not in drops or STAGES_WITH_ROSTER.index(drops[user]) > STAGES_WITH_ROSTER.index(stage)

    def talk(stage: Stage, inbox: Mapping[int, bytes], act: Callable[[int, bytes], bytes]) -> dict[int, bytes]:
        """Let every live client act on its message and the server take the answers; close the stage."""
        for user, request in inbox.items():
            if not alive(user, stage):
                continue
            if transcript is not None:
                transcript.to_clients.append((stage, user, request))
            try:
                with clock.client(stage):
                    answer = act(user, request)
            except PolicyViolation as refusal:  # The client protects itself; for the server it has dropped out.
                refusals.append(refusal)
                continue
            if transcript is not None:
                transcript.to_server.append((stage, user, answer))
            with clock.server(stage):
                server.receive(answer, sender=user)
            if progress:
                progress(stage, user)
        with clock.server(stage):
            return server.close_stage()

    def upload(user: int, delivery: bytes) -> bytes:
        pieces: list[tuple[Any, NDArray[Any]]] = []
        with clock.apart():
            update = updates(user) if callable(updates) else updates[user]

        def trace(where: Any, integers: NDArray[Any]) -> None:
            with clock.apart():
                pieces.append((where, integers.copy()))

        answer = clients[user].upload(delivery, update, 1 if weights is None else weights[user], trace)
        with clock.apart():
            for where, integers in pieces:
                plain[where] += integers
        return answer

    # Users: advertise fresh public keys.   Server: publish the directory.
    start = dict.fromkeys(users, params.encode())
    directory = talk(Stage.ADVERTISE_KEYS, start, lambda user, _: clients[user].advertise_keys())
    # Users: split mask key and private seed, seal the shares.   Server: deliver them to their holders.
    delivery = talk(Stage.SHARE_KEYS, directory, lambda user, data: clients[user].share_keys(data))
    # Users: quantise, sparsify, mask, send.   Server: add on arrival, tell who survived.
    request = talk(Stage.UPLOAD, delivery, upload)
    try:
        if params.authenticated:
            # Users: confirm to each other who survived.   Server: relay the confirmations.
            request = talk(Stage.CONFIRM, request, lambda user, data: clients[user].confirm(data))
        # Users: check the survivors, release one share per secret.   Server: restore the secrets, remove the masks.
        talk(Stage.UNMASK, request, lambda user, data: clients[user].unmask(data))
    except Exception:
        if refusals:
            raise RoundRefused(len(refusals), str(refusals[0])) from None
        raise

    result = server.result
    assert result is not None  # noqa: S101  # UNMASK was closed without an error.
    summed = plain.reshape(params.layout.blocks, params.width)
    return Outcome(
        result=result,
        exact=bool(np.array_equal(params.layout.flatten(summed), result.total)),
        clipped=sum(clients[user].clipped for user in result.survivors),
        client_seconds=clock.client_means(),
        server_seconds=clock.server_totals(),
    )


class _Clock:
    """Computing time by stage: the mean of the clients, the total of the server."""

    def __init__(self) -> None:
        self._client: dict[str, list[float]] = defaultdict(list)
        self._server: dict[str, float] = defaultdict(float)
        self._apart = 0.0

    @contextmanager
    def client(self, stage: Stage) -> Any:
        self._apart, start = 0.0, time.perf_counter()
        yield
        self._client[stage.name].append(time.perf_counter() - start - self._apart)

    @contextmanager
    def server(self, stage: Stage) -> Any:
        start = time.perf_counter()
        yield
        self._server[stage.name] += time.perf_counter() - start

    @contextmanager
    def apart(self) -> Any:
        """Leave out what the simulation does for itself."""
        start = time.perf_counter()
        yield
        self._apart += time.perf_counter() - start

    def client_means(self) -> dict[str, float]:
        means = {stage.name: float(np.mean(self._client.get(stage.name) or [0.0])) for stage in self._stages()}
        return {**means, "total": sum(means.values())}

    def server_totals(self) -> dict[str, float]:
        totals = {stage.name: self._server[stage.name] for stage in self._stages()}
        return {**totals, "total": sum(totals.values())}

    def _stages(self) -> tuple[Stage, ...]:
        return STAGES_WITH_ROSTER if Stage.CONFIRM.name in self._client else STAGES
