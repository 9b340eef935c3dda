"""Small runs for tests, driven stage by stage so that a test can step in between."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy
from sparsesecagg.patterns import PATTERNS, Pod
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, Result, Server, Stage, session_of
from sparsesecagg.protocol.messages import decode_client_message, decode_server_message, encode, encode_users
from sparsesecagg.protocol.order import NO_TERMS

LENIENT = Policy(min_survivors=1, min_anonymity=1, patterns=frozenset(PATTERNS))


def lenient(**changes: Any) -> Policy:
    """Return a policy that demands nothing but what is named."""
    return replace(LENIENT, **changes)


def small(**settings: object) -> Parameters:
    """Return parameters of a small run in which everybody masks with everybody; any of them can be overridden."""
    defaults: dict[str, object] = {"clients": 5, "dim": 40, "pattern": "full", "min_survivors": 1}
    return Parameters.create(**{**defaults, **settings})  # type: ignore[arg-type]


def grouped(**settings: object) -> Parameters:
    """Return parameters of a run with two pods of two committees of four."""
    defaults: dict[str, object] = {"clients": 16, "dim": 40, "committees": 4, "pods": 2, "min_survivors": 2}
    return Parameters.create(**{**defaults, **settings})  # type: ignore[arg-type]


@cache
def identities(clients: int, seed: int = 0) -> list[Identity]:
    """Return enrolled identities; they keep nothing of a run but what they have agreed on."""
    return make_identities(clients, "test", seeded_entropy(seed, 999))


def with_roster(make: Callable[..., Parameters], **settings: object) -> Parameters:
    """Return parameters of an authenticated run."""
    clients = make(**settings).clients
    return make(**settings, roster_digest=identities(clients)[0].roster.digest)


def updates(params: Parameters, seed: int = 0) -> list[np.ndarray]:
    """Return random updates, some of them beyond the clip."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(params.dim) * params.clip / 3).astype(np.float32) for _ in range(params.clients)]


def tampered(data: bytes, **changes: object) -> bytes:
    """Return a server's message with some fields changed."""
    return encode(msgspec.structs.replace(decode_server_message(data), **changes))


def tampered_by_user(data: bytes, **changes: object) -> bytes:
    """Return a user's message with some fields changed."""
    return encode(msgspec.structs.replace(decode_client_message(data), **changes))


def flipped(data: bytes, place: int = 0) -> bytes:
    """Return the bytes with one bit changed."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


class Run:
    """All clients and the server of a run. `step` runs one stage, `begin` starts a round, `round` does all of one."""

    def __init__(
        self,
        params: Parameters,
        *,
        policy: Policy = LENIENT,
        seed: int = 0,
        absent: Collection[int] = (),
        late: Collection[int] = (),
        set_up: bool = True,
    ) -> None:
        secret = digest("seed of a test", bytes([seed % 256]))
        self.params = params if params.authenticated else params.replace(session=session_of(secret))
        self.identities = identities(params.clients) if params.authenticated else None
        self.policy, self.seed = policy, seed
        self.ledgers = {user: MemoryLedger() for user in range(params.clients)}
        self.clients = {user: self._client(user) for user in range(params.clients)}
        self.server = Server(self.params, secret, self.identities[0].roster if self.identities else None)
        self.inbox: dict[int, bytes] = dict.fromkeys(self.clients, b"")
        """The server's last message to each client."""
        self.members: set[int] = set()
        self.updates = updates(self.params, seed)
        self.terms = NO_TERMS
        if set_up:
            self.set_up(absent, late)

    def _client(self, user: int) -> Client:
        entropy = seeded_entropy(self.seed, user)
        return Client(user, self.params, self.policy, entropy, self.identity(user), self.ledgers[user])

    def identity(self, user: int) -> Identity | None:
        """Return who a user is, in an authenticated run."""
        return self.identities[user] if self.identities else None

    def restored(self, user: int, saved: bytes | None = None, policy: Policy | None = None) -> Client:
        """Return the client as another process would find it."""
        client = self.clients[user]
        saved = client.save() if saved is None else saved
        return Client.restore(saved, policy or self.policy, client._entropy, self.identity(user), self.ledgers[user])

    def copied(self, user: int) -> Client:
        """Return a second client in the same state with a ledger of its own: what a client that forgets would do."""
        ledger = MemoryLedger(last=self.ledgers[user].last())
        client = self.clients[user]
        return Client.restore(client.save(), self.policy, seeded_entropy(1, user), self.identity(user), ledger)

    # The set-up

    def set_up(self, absent: Collection[int] = (), late: Collection[int] = ()) -> None:
        """Run until the first round can begin; the absent advertise no keys, the late deal no packages."""
        self.step(absent)
        while self.server.stage is Stage.DRAW:
            self.step()
        self.join(late)

    def join(self, late: Collection[int] = ()) -> None:
        """Let everybody join the epoch, and deal the first two packages."""
        for user, data in self.inbox.items():
            self.clients[user].join(data)
        self.members = set(self.inbox)
        self.deal(late)

    def deal(self, silent: Collection[int] = ()) -> None:
        """Let everybody send the packages that it has not sent yet."""
        for user in sorted(self.members.difference(silent)):
            for package in self.clients[user].share_keys(self.server.round_number):
                self.server.receive(package)

    # A round

    def begin(self, round_number: int | None = None, **settings: object) -> Run:
        """Start a round."""
        self.inbox = self.server.begin_round(round_number, **{"terms": self.terms, **settings})  # type: ignore[arg-type]
        return self

    def answer(self, user: int, data: bytes | None = None) -> bytes:
        """Return what the client answers to the server's last message, or to another one."""
        client, request = self.clients[user], self.inbox[user] if data is None else data
        actions: dict[Stage, Callable[[], bytes]] = {
            Stage.ADVERTISE_KEYS: client.advertise_keys,
            Stage.DRAW: lambda: client.reveal(request),
            Stage.UPLOAD: lambda: client.upload(request, self.updates[user], terms=self.terms),
            Stage.CONFIRM: lambda: client.confirm(request),
            Stage.UNMASK: lambda: client.unmask(request),
        }
        return actions[self.server.stage]()

    def step(self, silent: Iterable[int] = ()) -> Run:
        """Run one stage without the silent users; with UPLOAD everybody else deals its next package."""
        silent = set(silent)
        for user in [user for user in self.inbox if user not in silent]:
            self.server.receive(self.answer(user))
        if self.server.stage is Stage.UPLOAD:
            self.deal(silent)
        self.inbox = self.server.close_stage()
        return self

    def run_to(self, stage: Stage) -> Run:
        """Run until the server waits for the messages of `stage`; begins a round if there is none."""
        if self.server.stage is Stage.DONE and stage is not Stage.DONE:
            self.begin()
        while self.server.stage is not stage:
            self.step()
        return self

    def round(self, silent: Iterable[int] = (), **settings: object) -> Result:
        """Run a whole round; the silent ones send no upload and no package in it."""
        self.begin(**settings)  # type: ignore[arg-type]
        self.step(silent)
        self.run_to(Stage.DONE)
        return self.result

    @property
    def result(self) -> Result:
        """The outcome of the last round."""
        assert self.server.result is not None
        return self.server.result

    # Who is where

    def pod(self, user: int) -> Pod:
        """Return the pod of a user."""
        pod = self.server.groups.pod_of(user)
        assert pod is not None
        return pod

    def place(self, user: int) -> int:
        """Return a user's place in its pod."""
        return self.pod(user).place[user]

    def committee(self, user: int) -> list[int]:
        """Return the users of a user's committee."""
        pod = self.pod(user)
        return [int(pod.users[place]) for place in pod.committees[int(pod.committee_of[self.place(user)])]]

    def committees(self) -> list[list[int]]:
        """Return the users of all committees, by number."""
        return [pod.users[members].tolist() for pod in self.server.groups.pods for members in pod.committees]

    def bitmap(self, users: Iterable[int]) -> bytes:
        """Return a set of users of one pod as it travels."""
        chosen = sorted(users)
        pod = self.pod(chosen[0])
        return encode_users(np.array([pod.place[user] for user in chosen], np.int64), len(pod))
