"""One client, its ledger, and everything a server and a machine can do to it in any order.

Processes crash and come back, state is copied and put back, two processes run at once, and a malicious server has all
requests of two rounds at hand: two headers for each, two sets of survivors for each header, with valid tags of all
other users for every one of them (they answer without ledgers, so they count as the server's helpers). Whatever
happens, the client accepts one header per round, gives one answer per stage, one key package per round, and one kind of
share per owner and round. An interleaving is drawn from a seed, so a failure is repeated by its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar
from unittest.mock import patch

import numpy as np

from faults import KeepingLedger, cheap_runs
from protocol.rounds import LENIENT, Run, small
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.protocol import Client, MemoryLedger
from sparsesecagg.protocol.epoch import AHEAD, NO_CONTEXT
from sparsesecagg.protocol.ledger import Entry, Journal
from sparsesecagg.protocol.messages import (
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    decode_users,
    encode,
    pieces,
)
from sparsesecagg.protocol.server_group import GroupRound
from sparsesecagg.protocol.stages import Progress

USERS, VICTIM = 5, 0
STEPS = 12
Mode = Literal["plain", "roster"]
MODES: tuple[Mode, ...] = ("plain", "roster")
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Request:
    """Something that the server may ask."""

    round_number: int
    progress: Progress
    """What the victim has reached when it has answered."""
    data: bytes
    survivors: frozenset[int] = frozenset()
    """At UNMASK: of these owners the seeds are asked for, of the others the mask secrets."""

    @property
    def position(self) -> tuple[int, int]:
        return self.round_number, self.progress


class Server:
    """A server that has prepared every request of two rounds, with the help of all users but one."""

    def __init__(self, mode: Mode) -> None:
        self.run = Run(small(clients=USERS, dim=8, roster=mode == "roster"))
        self.saved = {user: client.save() for user, client in self.run.clients.items()}
        self.entries = {user: ledger.last() for user, ledger in self.run.ledgers.items()}
        self.requests = [request for number in (1, 2) for absent in (0, 1) for request in self._prepare(number, absent)]

    def client(self, user: int, ledger: Any, state: bytes | None = None) -> Client:
        """Return a user as another process would find it."""
        return Client.restore(state or self.saved[user], LENIENT, identity=self.run.identity(user), ledger=ledger)

    def _prepare(self, number: int, absent: int) -> Iterator[Request]:
        """Yield the requests under one header of a round: all users are members, or all but the last."""
        group = self.run.server._epoch.groups[0]
        packages = {user: each for user, each in group.packages[number].items() if user < USERS - absent}
        shown = GroupRound(group.epoch, number, packages, NO_CONTEXT)
        headers = shown.headers()
        yield Request(number, Progress.ACCEPTED, headers[VICTIM])
        yield Request(number, Progress.UPLOADED, headers[VICTIM])
        tags = {}
        for user in packages.keys() - {VICTIM}:
            helper = self.client(user, MemoryLedger(last=self.entries[user]))
            message = decode_client_message(helper.upload(headers[user], self.run.updates[user]))
            assert isinstance(message, Upload)
            partners = shown.header.partners(user).tolist()
            tags[user] = pieces(message.tags, len(partners), TAG_SIZE, "")[partners.index(VICTIM)]
        for survivors in (sorted(packages), sorted(packages)[:-1]):
            told = b"".join(tags[user] for user in survivors if user != VICTIM)
            request = UnmaskRequest(number, shown.header.binding, self.run.bitmap(survivors), told)
            yield Request(number, Progress.OVER, encode(request), frozenset(survivors))


@cache
def server_of(mode: Mode) -> Server:
    """Requests take a while to prepare, and are the same in every interleaving."""
    return Server(mode)


class Node:
    """A node whose owner, machine and server do what they like."""

    def __init__(self, server: Server, number: int, seen: Counter[str]) -> None:
        """One process, with the ledger as the set-up has left it."""
        self.server, self.seen = server, seen
        self.rng = np.random.default_rng([2027, number])
        self.ledger = KeepingLedger()
        self.ledger.begin(server.entries[VICTIM], server.saved[VICTIM])
        self.processes = [self._process(server.saved[VICTIM])]
        self.copies: list[bytes] = []
        self.headers: dict[int, bytes] = {}
        self.answers: dict[tuple[int, int], bytes] = {}
        self.packages: dict[int, bytes] = {}
        self.kinds: dict[tuple[int, int], bool] = {}
        self.done: list[str] = []
        """The way here, for whoever looks into a failure."""

    def run(self) -> None:
        """Do a dozen things in any order; what is due more often than the rest."""
        due = [self.ask_what_is_due] * 4
        rest = [self.ask_anything, self.share_keys, self.crash, self.start_another_process, self.copy, self.put_back]
        for _ in range(STEPS):
            act = self._one_of([*due, *rest])
            self.done.append(act.__name__)
            act()

    def _one_of(self, choices: Sequence[Kind]) -> Kind:
        return choices[int(self.rng.integers(len(choices)))]

    def _process(self, state: bytes) -> Client:
        return self.server.client(VICTIM, self.ledger, state)

    def ask_what_is_due(self) -> None:
        """Ask for the next stage."""
        last: Entry = self.ledger.last()
        later = [one for one in self.server.requests if one.position > (last.round_number, last.progress)]
        due = min((one.position for one in later), default=None)
        self._ask([one for one in later if one.position == due])

    def ask_anything(self) -> None:
        """Ask for any stage of any round."""
        self._ask(self.server.requests)

    def share_keys(self) -> None:
        """Ask for key packages, also for those that were sent."""
        client, number = self._one_of(self.processes), int(self.rng.integers(3))
        made = self._try(lambda: client.share_keys(number, again=True)) or []
        assert len(made) <= AHEAD
        for package in made:
            round_number = decode_client_message(package).round_number
            assert self.packages.setdefault(round_number, package) == package, "two packages for one round"

    def crash(self) -> None:
        """Let a process die and come back."""
        self.processes[int(self.rng.integers(len(self.processes)))] = self._process(self.ledger.saved())

    def start_another_process(self) -> None:
        """Run two or three at once."""
        self.processes = [*self.processes[-2:], self._process(self.ledger.saved())]

    def copy(self) -> None:
        """Keep a copy of the state."""
        self.copies.append(self._one_of(self.processes).save())

    def put_back(self) -> None:
        """Let a process go on from a copy."""
        if self.copies:
            self.processes[int(self.rng.integers(len(self.processes)))] = self._process(self._one_of(self.copies))

    def _ask(self, requests: list[Request]) -> None:
        """Ask one of the processes one of some requests."""
        if not requests:
            return
        client, request = self._one_of(self.processes), self._one_of(requests)
        if request.progress is Progress.ACCEPTED:
            if self._try(lambda: (client.accept(request.data),)):
                self._note_header(request)
                self.seen["ACCEPTED"] += 1
            return
        if request.progress is Progress.UPLOADED:
            answer = self._try(lambda: client.upload(request.data, self.server.run.updates[VICTIM]))
        else:
            answer = self._try(lambda: client.unmask(request.data))
        if not answer:
            return
        self.seen[request.progress.name] += 1
        assert self.answers.setdefault(request.position, answer) == answer, "two answers for one stage"
        if request.progress is Progress.UPLOADED:
            self._note_header(request)
        else:
            self._note_shares(request, answer)

    def _note_header(self, request: Request) -> None:
        assert self.headers.setdefault(request.round_number, request.data) == request.data, "two headers for one round"

    def _note_shares(self, request: Request, answer: bytes) -> None:
        message = decode_client_message(answer)
        assert isinstance(message, Unmask)
        for owner in decode_users(message.owners, USERS).tolist():
            survived = owner in request.survivors
            assert self.kinds.setdefault((request.round_number, owner), survived) == survived, "both kinds of share"

    def _try(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except SparseSecAggError as refusal:
            self.seen[type(refusal).__name__] += 1
            return None


@contextmanager
def without_ledger() -> Iterator[None]:
    """Let clients answer without looking at what they have answered before."""

    def unasked(self: Journal, message: Any, progress: Any, data: bytes) -> None:
        return None

    def unrecorded(self: Journal, state: Any, *rest: Any) -> None:
        self.state = state

    with patch.object(Journal, "answered", unasked), patch.object(Journal, "record", unrecorded):
        yield


def run_interleavings(mode: Mode, first: int, count: int) -> Counter[str]:
    """Run many interleavings; return how often each stage was answered and each error raised."""
    seen: Counter[str] = Counter()
    with cheap_runs():
        for number in range(first, first + count):
            node = Node(server_of(mode), number, seen)
            try:
                node.run()
            except AssertionError as failure:
                way = ", ".join(node.done)
                raise AssertionError(f"interleaving {number}, {mode}: {failure}, after {way}") from failure
    return seen
