"""A whole run in one process: every client, the server, and the dropouts between them.

This is the protocol as one reads it, stage by stage. Deployments run the same `Client` and `Server` over a network.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.crypto.secrets import Entropy
from sparsesecagg.errors import MalformedMessage, PolicyViolation, RoundRefused, ThresholdNotMet, TooLittleOpened
from sparsesecagg.patterns.base import Index, Trace, Update
from sparsesecagg.protocol.client import Client
from sparsesecagg.protocol.header import NO_CONTEXT
from sparsesecagg.protocol.ledger import Entry, Ledger, MemoryLedger
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.result import Result
from sparsesecagg.protocol.server import Server
from sparsesecagg.protocol.stages import STAGES, Stage
from sparsesecagg.protocol.state import restore_state
from sparsesecagg.simulate.allocation import keep_freed_memory
from sparsesecagg.simulate.clock import Clock
from sparsesecagg.simulate.observer import Observer

Updates = Sequence[Update] | Callable[[int], Update]
Drops = Mapping[int, Stage]
"""At which stage a user drops out: it sends neither that stage's message nor later ones of the round."""
EntropyOf = Callable[[int], Entropy]
MakeServer = Callable[[Parameters, Roster | None], Server]
ROUND = (Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK)


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


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a simulated run, and with what. The defaults are users as they come."""

    policy: Policy | None = None
    entropy_of: EntropyOf | None = None
    """Each user's source of randomness; the system's by default."""
    identities: Sequence[Identity] | None = None
    """Those of an authenticated run."""
    ledger_of: Callable[[int], Ledger] | None = None
    """Each user's ledger; one in memory by default."""

    @property
    def roster(self) -> Roster | None:
        """The roster of an authenticated run."""
        return self.identities[0].roster if self.identities else None

    def entropy(self, user: int) -> Entropy:
        """Return a user's source of randomness."""
        return self.entropy_of(user) if self.entropy_of else os.urandom

    def identity(self, user: int) -> Identity | None:
        """Return a user's identity, if the run has any."""
        return self.identities[user] if self.identities else None

    def ledger(self, user: int) -> Ledger:
        """Return a user's ledger."""
        return self.ledger_of(user) if self.ledger_of else MemoryLedger(keep_answers=False)


class InProcessRun:
    """A run among simulated users. Making one is the set-up; then call `round` as often as you like.

    `absent` users never advertise a key, `late` ones send no key package ahead of the first round. `make_server` puts
    another server in the place of the honest one, for those who study what a malicious server can do. With `groups`,
    only these are simulated: everybody advertises a key, and the users of all other groups then drop out.
    """

    def __init__(
        self,
        params: Parameters,
        cohort: Cohort | None = None,
        *,
        absent: Collection[int] = (),
        late: Collection[int] = (),
        groups: Collection[int] | None = None,
        observer: Observer | None = None,
        make_server: MakeServer = Server,
        threads: int = 1,
    ) -> None:
        keep_freed_memory()
        self.params, self.cohort = params, cohort or Cohort()
        self.observer = observer or Observer()
        self.server = make_server(params, self.cohort.roster)
        self.server.threads = threads
        self.clients = {user: self._client(user) for user in range(params.clients)}
        self.setup_clock = Clock(self.observer)
        self._set_up(absent, late, groups)

    def _client(self, user: int) -> Client:
        each = self.cohort
        return Client(user, self.params, each.policy, each.entropy(user), each.identity(user), each.ledger(user))

    def _set_up(self, absent: Collection[int], late: Collection[int], groups: Collection[int] | None) -> None:
        server, clock = self.server, self.setup_clock
        # Users: advertise a sealing key.   Server: publish each group's keys.
        for user, client in self.clients.items():
            if user not in absent:
                clock.to_server(Stage.ADVERTISE_KEYS, user, client.advertise_keys, server)
        with clock.server(Stage.ADVERTISE_KEYS):
            epoch_keys = server.close_stage()
        if groups is not None:
            simulated = {user for number in groups for user in server.groups.groups[number].users.tolist()}
            epoch_keys = {user: data for user, data in epoch_keys.items() if user in simulated}
            self.clients = {user: self.clients[user] for user in epoch_keys}
        # Users: agree on a secret with each partner in the group, and send the key packages of the first two rounds.
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
        with clock.client(Stage.SHARE_KEYS):
            return self.clients[user].share_keys(self.server.round_number)

    def _send(self, user: int, packages: Iterable[bytes], clock: Clock) -> None:
        for package in packages:
            with clock.server(Stage.SHARE_KEYS):
                self.server.receive(package, sender=user)
            self.observer.to_server(Stage.SHARE_KEYS, user, package)

    def share_keys(self, users: Collection[int]) -> None:
        """Let users that dropped out of the last round send their key packages of the next ones all the same."""
        for user in sorted(self.members.intersection(users)):
            self._send(user, self._packages(user, self.setup_clock), self.setup_clock)

    def round(
        self,
        updates: Updates,
        *,
        weights: Sequence[int] | None = None,
        drops: Drops | None = None,
        context: bytes = NO_CONTEXT,
        min_updated: float = 0.0,
    ) -> Outcome:
        """Run the next round and return its outcome.

        `updates` are the users' vectors, or a function that makes them when they are needed. `min_updated` is the
        fraction of the round's coordinates that must be opened.
        """
        drops, server = drops or {}, self.server
        clock, plain = Clock(self.observer), _PlainSum(self.params)
        refusals: list[tuple[Stage, PolicyViolation]] = []
        packages: dict[int, list[bytes]] = {}

        def talk(stage: Stage, inbox: Mapping[int, bytes], act: Callable[[int, bytes], bytes]) -> None:
            """Let every live client act on its message and the server take the answers."""
            for user, request in inbox.items():
                if not _alive(user, stage, drops):
                    continue
                self.observer.to_client(stage, user, request)
                try:
                    clock.to_server(stage, user, partial(act, user, request), server)
                except PolicyViolation as refusal:  # For the server it has dropped out.
                    refusals.append((stage, refusal))

        def upload(user: int, header: bytes) -> bytes:
            with clock.apart():
                update = updates(user) if callable(updates) else updates[user]
            client, weight = self.clients[user], 1 if weights is None else weights[user]
            with client.one_record():
                trace = clock.pausing(plain.of(server.groups.of(user).number))
                answer = client.upload(header, update, weight, context=context, trace=trace)
                packages[user] = self._packages(user, clock)
            return answer

        try:
            # Server: say whose key packages are used, and for what.
            with clock.server(Stage.UPLOAD):
                headers = server.begin_round(context=context, min_updated=min_updated)
            # Users: select, clip, round, mask, send, with a tag for each partner.   Server: add on arrival.
            # With it goes the key package of the round after the next; who has no header, or refuses it, sends one too.
            talk(Stage.UPLOAD, headers, upload)
            for user in sorted(self.members):
                if _alive(user, Stage.UPLOAD, drops):
                    self._send(user, packages[user] if user in packages else self._packages(user, clock), clock)
            with clock.server(Stage.UPLOAD):
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
        if result is None:
            raise RuntimeError("UNMASK was closed without a result")
        return Outcome(
            result=result,
            exact=bool(np.array_equal(plain.total(result.lost), result.total)),
            clipped=sum(self.clients[user].clipped for user in result.survivors),
            client_seconds=clock.client_means(ROUND),
            server_seconds=clock.server_totals(ROUND),
        )

    # A run that is kept between two rounds

    def save(self) -> bytes:
        """Return the run as bytes, between two rounds. They hold every user's secrets, as only a simulation can."""
        clients = {user: client.save() for user, client in self.clients.items()}
        return msgspec.msgpack.encode(_Saved(self.server.save(), clients, sorted(self.members)))

    @staticmethod
    def restore(data: bytes, cohort: Cohort | None = None, *, observer: Observer | None = None) -> InProcessRun:
        """Return the run that `save` wrote down: its next round is the one that would have come."""
        cohort = cohort or Cohort()
        try:
            saved = msgspec.msgpack.decode(data, type=_Saved)
        except msgspec.MsgspecError:
            raise MalformedMessage("the bytes are not a saved run") from None
        server = Server.restore(saved.server, cohort.roster, threads=1)
        run = InProcessRun.__new__(InProcessRun)
        run.params, run.cohort, run.server = server.params, cohort, server
        run.observer, run.members = observer or Observer(), set(saved.members)
        run.setup_clock, run.setup_sent, run.setup_received = Clock(run.observer), {}, {}
        run.clients = {
            user: Client.restore(
                state,
                cohort.policy,
                cohort.entropy(user),
                cohort.identity(user),
                MemoryLedger(keep_answers=False, last=_last_entry(state)),
            )
            for user, state in saved.clients.items()
        }
        return run


def run_round(
    params: Parameters,
    updates: Updates,
    cohort: Cohort | None = None,
    *,
    weights: Sequence[int] | None = None,
    drops: Drops | None = None,
    context: bytes = NO_CONTEXT,
    observer: Observer | None = None,
) -> Outcome:
    """Set up a run, run one round and return its outcome. Who drops out before UPLOAD is missing from the set-up."""
    drops = drops or {}
    run = InProcessRun(
        params,
        cohort,
        absent={user for user, stage in drops.items() if stage is Stage.ADVERTISE_KEYS},
        late={user for user, stage in drops.items() if stage is Stage.SHARE_KEYS},
        observer=observer,
    )
    return run.round(updates, weights=weights, drops=drops, context=context)


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
    return Entry(state.version, state.round_number, state.progress)


class _PlainSum:
    """The users' integers without any mask, group by group. Simulated users are honest: all that upload are in."""

    def __init__(self, params: Parameters) -> None:
        self._dim = params.dim
        self._pieces: dict[int, dict[int, tuple[Index, NDArray[np.int64]]]] = defaultdict(dict)
        self._drawn: NDArray[np.int64] | None = None
        self._public = params.shape.protects

    def of(self, group: int) -> Trace:
        """Return what notes one user's integers. All users of a group have the same coordinates if they are public."""
        pieces = self._pieces[group]

        def note(index: Index, integers: NDArray[np.int64]) -> None:
            if not len(integers):
                return
            first = index.start if isinstance(index, slice) else int(index[0])
            if not self._public:
                self._drawn = np.zeros(self._dim, np.int64) if self._drawn is None else self._drawn
                self._drawn[index] += integers
            elif first in pieces:
                pieces[first][1][:] += integers
            else:
                pieces[first] = index, integers.astype(np.int64)

        return note

    def total(self, lost: Collection[int]) -> NDArray[np.int64]:
        """Return the sum over the groups that were opened."""
        total = np.zeros(self._dim, np.int64) if self._drawn is None else self._drawn
        for group, pieces in self._pieces.items():
            if group not in lost:
                for index, integers in pieces.values():
                    total[index] += integers
        return total
