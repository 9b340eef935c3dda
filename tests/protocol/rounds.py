"""Small runs for tests, driven stage by stage so that a test can step in between."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.patterns.groups import Group
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, Result, RoundOptions, Server, Stage
from sparsesecagg.protocol.epoch import NO_CONTEXT
from sparsesecagg.protocol.messages import (
    RoundHeader,
    UnmaskRequest,
    decode_client_message,
    decode_server_message,
    encode,
    encode_users,
    pieces,
)
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy

LENIENT = Policy(min_anonymity=0, patterns=frozenset(PATTERNS))


def lenient(**changes: Any) -> Policy:
    """Return a policy that demands nothing but what is named."""
    return replace(LENIENT, **changes)


@cache
def identities(clients: int, group_size: int | None = None, seed: int = 0) -> list[Identity]:
    """Return enrolled identities; they keep nothing of a run but what they have agreed on."""
    return make_identities(clients, "test", seeded_entropy(seed, 999), group_size=group_size)


def make(clients: int, dim: int, *, session: bytes = b"s" * 32, roster: bool = False, **options: Any) -> Parameters:
    """Return parameters; with `roster` of an authenticated run, whose identities are `identities(clients, …)`."""
    known = identities(clients, options.get("group_size"))[0].roster if roster else None
    return Parameters.create(clients, dim, RoundOptions(**options), session=session, roster=known)


def small(clients: int = 5, dim: int = 40, **settings: Any) -> Parameters:
    """Return parameters of a small run of one group that sends everything; three of five users open a sum."""
    settings = {"threshold": None if settings.get("neighbours") else clients // 2 + 1, **settings}
    return make(clients, dim, **settings)


def grouped(clients: int = 12, dim: int = 40, **settings: Any) -> Parameters:
    """Return parameters of a run with two groups of six, each of which sends its quarter; four of six open a sum."""
    settings = {"group_size": 6, "alpha": 0.25, "threshold": 4, **settings}
    return make(clients, dim, **settings)


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


def flipped(data: bytes, byte: int = 0) -> bytes:
    """Return the bytes with one bit changed."""
    changed = bytearray(data)
    changed[byte] ^= 1
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
        self.params = params if params.authenticated or not seed else params.replace(session=bytes([seed % 256]) * 32)
        size = None if params.groups == 1 else params.contributors
        self.identities = identities(params.clients, size) if params.authenticated else None
        self.policy, self.seed = policy, seed
        self.ledgers = {user: MemoryLedger() for user in range(params.clients)}
        self.clients = {user: self._client(user) for user in range(params.clients)}
        self.server = Server(self.params, self.identities[0].roster if self.identities else None, threads=1)
        self.inbox: dict[int, bytes] = dict.fromkeys(self.clients, b"")
        """The server's last message to each client."""
        self.members: set[int] = set()
        self.updates = updates(self.params, seed)
        self.context = NO_CONTEXT
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
        """Run until the first round can begin; the absent advertise no keys, the late share none."""
        self.step(absent)
        self.join(late)

    def join(self, late: Collection[int] = ()) -> None:
        """Let everybody join the epoch, and send the first two key packages."""
        for user, data in self.inbox.items():
            self.clients[user].join(data)
        self.members = set(self.inbox)
        self.share_keys(late)

    def share_keys(self, silent: Collection[int] = ()) -> None:
        """Let everybody send the key packages that it has not sent yet."""
        for user in sorted(self.members.difference(silent)):
            for package in self.clients[user].share_keys(self.server.round_number):
                self.server.receive(None, package)

    # A round

    def begin(self, round_number: int | None = None, **settings: Any) -> Run:
        """Start a round."""
        self.inbox = self.server.begin_round(round_number, **{"context": self.context, **settings})
        return self

    def answer(self, user: int, data: bytes | None = None) -> bytes:
        """Return what the client answers to the server's last message, or to another one."""
        client, request = self.clients[user], self.inbox[user] if data is None else data
        actions: dict[Stage, Callable[[], bytes]] = {
            Stage.ADVERTISE_KEYS: client.advertise_keys,
            Stage.UPLOAD: lambda: client.upload(request, self.updates[user], context=self.context),
            Stage.UNMASK: lambda: client.unmask(request),
        }
        return actions[self.server.stage]()

    def step(self, silent: Iterable[int] = ()) -> Run:
        """Run one stage without the silent users; with UPLOAD everybody else sends its next key package."""
        silent = set(silent)
        for user in [user for user in self.inbox if user not in silent]:
            self.server.receive(None, self.answer(user))
        if self.server.stage is Stage.UPLOAD:
            self.share_keys(silent)
        self.inbox = self.server.close_stage()
        return self

    def run_to(self, stage: Stage) -> Run:
        """Run until the server waits for the messages of `stage`; begins a round if there is none."""
        if self.server.stage is Stage.SHARE_KEYS and stage is not Stage.SHARE_KEYS:
            self.begin()
        while self.server.stage is not stage:
            self.step()
        return self

    def round(self, silent: Iterable[int] = (), **settings: Any) -> Result:
        """Run a whole round; the silent ones send no upload and no key package in it."""
        self.begin(**settings)
        self.step(silent)
        self.run_to(Stage.SHARE_KEYS)
        return self.result

    @property
    def result(self) -> Result:
        """The outcome of the last round."""
        assert self.server.result is not None
        return self.server.result

    # Who is where

    def group(self, user: int) -> Group:
        """Return the group of a user."""
        return self.server.groups.of(user)

    def index(self, user: int) -> int:
        """Return a user's index in its group."""
        return self.group(user).index_of[user]

    def partners(self, user: int) -> list[int]:
        """Return the other users of a user's group."""
        return [each for each in self.group(user).users.tolist() if each != user]

    def bitmap(self, users: Iterable[int]) -> bytes:
        """Return a set of users of one group as it travels."""
        chosen = sorted(users)
        group = self.group(chosen[0])
        return encode_users(np.array([group.index_of[user] for user in chosen], np.int64), len(group))

    # What the server says to a user, and what it could say instead

    def header_of(self, user: int) -> RoundHeader:
        """Return the header that a user got."""
        message = decode_server_message(self.inbox[user])
        assert isinstance(message, RoundHeader)
        return message

    def request_of(self, user: int) -> UnmaskRequest:
        """Return the request for shares that a user got."""
        message = decode_server_message(self.inbox[user])
        assert isinstance(message, UnmaskRequest)
        return message

    def told(self, user: int, survivors: Iterable[int], bad: Collection[int] = ()) -> bytes:
        """Return the request with other survivors, and the tags of some of them garbled."""
        request, told = self.request_of(user), set(survivors)
        declared = [
            each for each in self.partners(user) if request.survivors[self.index(each) // 8] >> self.index(each) % 8 & 1
        ]
        tags = dict(zip(declared, pieces(request.tags, len(declared), TAG_SIZE, "tags"), strict=True))
        kept = [
            flipped(tags.get(each, bytes(TAG_SIZE))) if each in bad else tags.get(each, bytes(TAG_SIZE))
            for each in self.partners(user)
            if each in told
        ]
        return tampered(self.inbox[user], survivors=self.bitmap(told), tags=b"".join(kept))
