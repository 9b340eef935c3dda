"""A whole run in one process: every client, the server, and the dropouts between them.

This is the protocol as one reads it, stage by stage. Real deployments run the same `Client` and `Server` in an engine
that has a network.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.crypto.secrets import SECRET_SIZE, Entropy
from sparsesecagg.simulate.allocation import keep_freed_memory
from sparsesecagg.simulate.clock import Clock
from sparsesecagg.simulate.observer import Observer
from sparsesecagg.errors import (
    MalformedMessage,
    PolicyViolation,
    ProtocolError,
    RoundRefused,
    ThresholdNotMet,
    TooLittleOpened,
    WronglyExcluded,
)
from sparsesecagg.protocol.client import Client
from sparsesecagg.protocol.client_state import restore_state
from sparsesecagg.protocol.draws import session_of
from sparsesecagg.protocol.ledger import Entry, Ledger, MemoryLedger
from sparsesecagg.protocol.order import NO_TERMS
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.result import Result
from sparsesecagg.protocol.server import Server
from sparsesecagg.protocol.stages import STAGES, Stage, round_stages
from sparsesecagg.protocol.work import Update

Updates = Sequence[Update] | Callable[[int], Update]
Drops = Mapping[int, Stage]
"""At which stage a user drops out: it sends neither that stage's message nor later ones of the round."""
EntropyOf = Callable[[int], Entropy]
MakeServer = Callable[[Parameters, bytes, Roster | None], Server]


@dataclass(frozen=True)
class Outcome:
    """A completed round in one process: the server's result, and what only a simulation can know."""

    result: Result
    exact: bool
    """The aggregate equals the plain sum of the quantised values of all opened committees' survivors."""
    clipped: int
    """Values clipped by the survivors together."""
    client_seconds: Mapping[str, float]
    """By stage: mean per client that took part."""
    server_seconds: Mapping[str, float]


class InProcessRun:
    """A run among simulated users. Making one is the set-up; then call `round` as often as you like.

    `absent` users never advertise a key. `entropy_of` gives each user its source of randomness, the system's by
    default; `identities` belong to an authenticated run. `make_server` puts another server in the place of the honest
    one, for those who study what a lying server can do. `threads` is for the server; one by default, so that its
    seconds are those of one processor. With `pods`, only these are simulated: everybody advertises a key, and the
    users of all other pods then drop out. `ledger_of` gives each user its ledger, one in memory by default.
    """

    def __init__(
        self,
        params: Parameters,
        *,
        policy: Policy | None = None,
        entropy_of: EntropyOf | None = None,
        identities: Sequence[Identity] | None = None,
        absent: Collection[int] = (),
        late: Collection[int] = (),
        observer: Observer | None = None,
        make_server: MakeServer = Server,
        threads: int = 1,
        pods: Collection[int] | None = None,
        ledger_of: Callable[[int], Ledger] | None = None,
    ) -> None:
        keep_freed_memory()
        seed = entropy_of(params.clients)(SECRET_SIZE) if entropy_of else os.urandom(SECRET_SIZE)
        self.params = params if params.authenticated else params.replace(session=session_of(seed))
        self.server = make_server(self.params, seed, identities[0].roster if identities else None)
        self.server.threads = threads
        self.observer = observer or Observer()
        self.clients = {
            user: Client(
                user,
                self.params,
                policy,
                entropy_of(user) if entropy_of else os.urandom,
                identities[user] if identities else None,
                ledger_of(user) if ledger_of else MemoryLedger(keep_answers=False),
            )
            for user in range(params.clients)
        }
        self.setup_clock = Clock(self.observer)
        self._set_up(absent, late, pods)

    def save(self) -> bytes:
        """Return the run as bytes, between two rounds. They hold every user's secrets, as only a simulation can."""
        clients = {user: client.save() for user, client in self.clients.items()}
        return msgspec.msgpack.encode(_Saved(self.server.save(), clients, sorted(self.members)))

    @staticmethod
    def restore(
        data: bytes,
        *,
        policy: Policy | None = None,
        entropy_of: EntropyOf | None = None,
        identities: Sequence[Identity] | None = None,
        observer: Observer | None = None,
    ) -> InProcessRun:
        """Return the run that `save` wrote down: its next round is the one that would have come."""
        keep_freed_memory()
        try:
            saved = msgspec.msgpack.decode(data, type=_Saved)
        except msgspec.MsgspecError:
            raise MalformedMessage("the bytes are not a saved run") from None
        run = InProcessRun.__new__(InProcessRun)
        run.server = Server.restore(saved.server, identities[0].roster if identities else None, threads=1)
        run.params = run.server.params
        run.observer = observer or Observer()
        run.members = set(saved.members)
        run.clients = {
            user: Client.restore(
                state,
                policy,
                entropy_of(user) if entropy_of else os.urandom,
                identities[user] if identities else None,
                MemoryLedger(keep_answers=False, last=_last_entry(state)),
            )
            for user, state in saved.clients.items()
        }
        run.setup_clock = Clock(run.observer)
        run.setup_sent, run.setup_received = {}, {}
        return run

    def _set_up(self, absent: Collection[int], late: Collection[int], pods: Collection[int] | None) -> None:
        server, clock = self.server, self.setup_clock
        # Users: advertise a sealing key.   Server: draw the groups, publish each pod's keys.
        for user, client in self.clients.items():
            if user not in absent:
                clock.to_server(Stage.ADVERTISE_KEYS, user, client.advertise_keys, server)
        with clock.server(Stage.ADVERTISE_KEYS):
            epoch_keys = server.close_stage()
        while server.stage is Stage.DRAW:
            # Jurors: sign who is named, and reveal a nonce.   Server: draw the groups, publish each pod's keys.
            for user, data in epoch_keys.items():
                clock.to_server(Stage.DRAW, user, partial(self.clients[user].reveal, data), server)
            with clock.server(Stage.DRAW):
                epoch_keys = server.close_stage()
        if pods is not None:
            simulated = {user for index in pods for user in server.groups.pods[index].users.tolist()}
            epoch_keys = {user: data for user, data in epoch_keys.items() if user in simulated}
            self.clients = {user: self.clients[user] for user in epoch_keys}
        # Users: agree on a secret with each partner in the pod, and deal the packages of the first two rounds.
        for user, data in epoch_keys.items():
            with clock.client(Stage.ADVERTISE_KEYS):
                self.clients[user].join(data)
            self.observer.to_client(Stage.ADVERTISE_KEYS, user, data)
        self.members = set(epoch_keys)
        for user in sorted(self.members.difference(late)):
            self._send(user, self._packages(user, clock), clock)
        self.setup_sent = {stage: dict(sizes) for stage, sizes in server.sent_bytes.items()}
        """By stage and user: bytes of the set-up."""
        self.setup_received = {stage: dict(sizes) for stage, sizes in server.received_bytes.items()}

    def _packages(self, user: int, clock: Clock) -> list[bytes]:
        """Let a user deal the packages of the next rounds; one that was wrongly excluded has none to send."""
        with clock.client(Stage.SHARE_KEYS), suppress(WronglyExcluded):
            return self.clients[user].share_keys(self.server.round_number)
        return []

    def _send(self, user: int, packages: Iterable[bytes], clock: Clock) -> None:
        for package in packages:
            with clock.server(Stage.SHARE_KEYS):
                self.server.receive(package, sender=user)
            self.observer.to_server(Stage.SHARE_KEYS, user, package)

    def deal(self, users: Collection[int]) -> None:
        """Let users that dropped out of the last round send their packages of the next ones all the same."""
        for user in sorted(self.members.intersection(users)):
            self._send(user, self._packages(user, self.setup_clock), self.setup_clock)

    def round(
        self,
        updates: Updates,
        *,
        weights: Sequence[int] | None = None,
        drops: Drops | None = None,
        terms: bytes = NO_TERMS,
        min_updated: float = 0.0,
    ) -> Outcome:
        """Run the next round and return its outcome.

        `updates` are the users' vectors, or a function that makes them when they are needed. `min_updated` is the
        fraction of the coordinates that must be opened.
        """
        drops, server = drops or {}, self.server
        clock, plain = Clock(self.observer), _PlainSums(self.params)
        refusals: list[tuple[Stage, ProtocolError]] = []
        dealt: dict[int, list[bytes]] = {}

        def talk(stage: Stage, inbox: Mapping[int, bytes], act: Callable[[int, bytes], bytes]) -> None:
            """Let every live client act on its message and the server take the answers."""
            for user, request in inbox.items():
                if not _alive(user, stage, drops):
                    continue
                self.observer.to_client(stage, user, request)
                try:
                    clock.to_server(stage, user, partial(act, user, request), server)
                except (PolicyViolation, WronglyExcluded) as refusal:  # For the server it has dropped out.
                    refusals.append((stage, refusal))

        def upload(user: int, order: bytes) -> bytes:
            with clock.apart():
                update = updates(user) if callable(updates) else updates[user]
                trace = plain.of(user, server)
            client, weight = self.clients[user], 1 if weights is None else weights[user]
            with client.one_record():
                answer = client.upload(order, update, weight, terms=terms, trace=clock.pausing(trace))
                packages = self._packages(user, clock)
            dealt[user] = packages
            return answer

        try:
            # Server: say whose packages are used, with which terms.
            with clock.server(Stage.UPLOAD):
                orders = server.begin_round(terms=terms, min_updated=min_updated)
            # Users: quantise, select, mask, send, with a tag for each partner.   Server: add on arrival.
            # With it goes the package of the round after the next one; who has no order, or refuses it, deals too.
            talk(Stage.UPLOAD, orders, upload)
            for user in sorted(self.members):
                if _alive(user, Stage.UPLOAD, drops):
                    self._send(user, dealt[user] if user in dealt else self._packages(user, clock), clock)
            with clock.server(Stage.UPLOAD):
                requests = server.close_stage()
            if self.params.confirm:
                # Users: confirm to each other who survived.   Server: relay the confirmations.
                talk(Stage.CONFIRM, requests, lambda user, data: self.clients[user].confirm(data))
                with clock.server(Stage.CONFIRM):
                    requests = server.close_stage()
            # Users: check tags and survivors, release one share per secret.   Server: restore secrets, remove masks.
            talk(Stage.UNMASK, requests, lambda user, data: self.clients[user].unmask(data))
            with clock.server(Stage.UNMASK):
                server.close_stage()
        except (ThresholdNotMet, TooLittleOpened) as failure:
            if refusals:
                stage, first = refusals[0]
                raise RoundRefused(len(refusals), stage.name, str(first)) from failure
            raise
        result = server.result
        assert result is not None  # noqa: S101  # UNMASK was closed without an error.
        return Outcome(
            result=result,
            exact=bool(np.array_equal(plain.total(result), result.total)),
            clipped=sum(self.clients[user].clipped for user in result.survivors),
            client_seconds=clock.client_means(self._stages),
            server_seconds=clock.server_totals(self._stages),
        )

    @property
    def _stages(self) -> tuple[Stage, ...]:
        return (Stage.SHARE_KEYS, *round_stages(self.params.confirm))


def run_round(
    params: Parameters,
    updates: Updates,
    *,
    weights: Sequence[int] | None = None,
    drops: Drops | None = None,
    policy: Policy | None = None,
    entropy_of: EntropyOf | None = None,
    identities: Sequence[Identity] | None = None,
    observer: Observer | None = None,
    terms: bytes = NO_TERMS,
    min_updated: float = 0.0,
) -> Outcome:
    """Set up a run, run one round and return its outcome. Who drops out before UPLOAD is missing from the set-up."""
    drops = drops or {}
    run = InProcessRun(
        params,
        policy=policy,
        entropy_of=entropy_of,
        identities=identities,
        absent={user for user, stage in drops.items() if stage is Stage.ADVERTISE_KEYS},
        late={user for user, stage in drops.items() if stage is Stage.SHARE_KEYS},
        observer=observer,
    )
    return run.round(updates, weights=weights, drops=drops, terms=terms, min_updated=min_updated)


def _alive(user: int, stage: Stage, drops: Drops) -> bool:
    return user not in drops or STAGES.index(drops[user]) > STAGES.index(stage)


class _Saved(msgspec.Struct, frozen=True, array_like=True):
    """A run between two rounds."""

    server: bytes
    clients: dict[int, bytes]
    members: list[int]


def _last_entry(data: bytes) -> Entry:
    """Return the entry that a saved client has recorded last."""
    state = restore_state(data)
    return Entry(state.version, state.round_number, state.answered)


class _PlainSums:
    """The sums of the users' quantised values without any mask, committee by committee."""

    def __init__(self, params: Parameters) -> None:
        self._params = params
        self._pieces: dict[int, dict[tuple[int, int], NDArray[np.int64]]] = defaultdict(dict)
        self._drawn: NDArray[np.int64] | None = None

    def of(self, user: int, server: Server) -> Callable[[slice | NDArray[np.int64], NDArray[np.int64]], None]:
        """Return what notes one user's values."""
        pod = server.groups.pod_of(user)
        assert pod is not None  # noqa: S101
        pieces = self._pieces[pod.first + int(pod.committee_of[pod.place[user]])]

        def note(where: slice | NDArray[np.int64], integers: NDArray[np.int64]) -> None:
            if isinstance(where, slice):
                key = where.start, where.stop
                if key not in pieces:
                    pieces[key] = np.zeros(len(integers), np.int64)
                pieces[key] += integers
                return
            if self._drawn is None:
                self._drawn = np.zeros(self._params.dim, np.int64)
            self._drawn[where] += integers

        return note

    def total(self, result: Result) -> NDArray[np.int64]:
        """Return the sum over the committees that were opened."""
        total = np.zeros(self._params.dim, np.int64) if self._drawn is None else self._drawn
        for committee, pieces in self._pieces.items():
            if committee not in result.lost:
                for (start, stop), values in pieces.items():
                    total[start:stop] += values
        return total
