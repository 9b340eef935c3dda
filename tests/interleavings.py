"""One client, its ledger, and everything a server and a machine can do to it in any order.

Processes crash and come back, state is copied and put back, two processes run at once, and a lying server has all
requests of two rounds at hand: two orders for each, two sets of survivors for each order, with valid tags of all other
users for every one of them (they answer without ledgers, so they count as the server's helpers). Whatever happens, the
client gives one answer per stage, one package per round, and one kind of share per owner and round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from faults import KeepingLedger
from sparsesecagg.lab.attacks.base import Mode, Setting
from sparsesecagg.lab.attacks.world import World, everybody
from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.protocol import Client, MemoryLedger, Stage
from sparsesecagg.protocol.ledger import Entry
from sparsesecagg.protocol.messages import (
    Confirm,
    ConfirmRequest,
    Unmask,
    Upload,
    decode_client_message,
    decode_users,
    encode,
    encode_users,
)
from sparsesecagg.protocol.order import NO_TERMS, extend_chain
from sparsesecagg.protocol.package import AHEAD
from sparsesecagg.protocol.pod_round import PodRound
from sparsesecagg.protocol.stages import ROUND_STAGES

USERS = 7
STEPS = 12
ANY = st.integers(0, 999)
"""Chooses a process, and a request, a copy or a round: one draw, since drawing is what takes the time."""
LOT = 125
"""Interleavings per search: Hypothesis slows down as its tree of examples grows."""
MODES: tuple[tuple[Mode, bool], ...] = (
    ("plain", False),
    ("plain", True),
    ("authenticated", False),
    ("authenticated", True),
)
"""Mode, and whether survivors are confirmed."""


@dataclass(frozen=True)
class Request:
    """Something that the server may ask."""

    round_number: int
    stage: Stage
    data: bytes
    survivors: frozenset[int] = frozenset()
    """Places, at UNMASK: of these owners the seeds are asked for, of the others the mask secrets."""

    @property
    def position(self) -> tuple[int, int]:
        return self.round_number, ROUND_STAGES.index(self.stage)


class Server:
    """A server that has prepared every request of two rounds, with the help of all users but one."""

    def __init__(self, mode: Mode, confirm: bool) -> None:
        self.world = world = World(Setting(USERS, 1.0, mode, seed=1), confirm=confirm)
        self.victim = world.victim
        self.pod = world.pod_of(self.victim)
        self.saved = {user: client.save() for user, client in world.clients.items()}
        self.entries = {user: client._journal.ledger.last() for user, client in world.clients.items()}
        self.requests: list[Request] = []
        sets: list[bytes] = []
        for absent in (0, 1):
            sets += self._prepare(1, absent, self.pod.chain, [])
        for declared in sets[:2]:
            for absent in (0, 1):
                self._prepare(2, absent, extend_chain(self.pod.chain, 1, declared), [(1, declared)])

    def client(self, user: int, ledger: Any, state: bytes | None = None) -> Client:
        """Return a user as another process would find it."""
        client, identities = self.world.clients[user], self.world.identities
        identity = identities[user] if identities else None
        return Client.restore(state or self.saved[user], client.policy, identity=identity, ledger=ledger)

    def _prepare(self, number: int, absent: int, chain: bytes, history: list[tuple[int, bytes]]) -> list[bytes]:
        """Add the requests under one order of a round; return the sets of survivors that they name."""
        world, victim, epoch = self.world, self.victim, self.pod.epoch
        packages = dict(self.pod.packages[number])
        others = [place for place in sorted(packages) if epoch.pod.users[place] != victim]
        for place in others[:absent]:
            del packages[place]
        shown = PodRound(epoch, number, packages, NO_TERMS, chain)
        orders = shown.orders(dict.fromkeys(range(USERS), history))
        members = everybody(shown)
        self.requests.append(Request(number, Stage.UPLOAD, orders[epoch.pod.place[victim]]))
        helpers = {user: self._helper(user) for user in members if user != victim}
        for user, client in helpers.items():
            message = decode_client_message(client.upload(orders[epoch.pod.place[user]], world.updates[user]))
            assert isinstance(message, Upload)
            world.uploads[user] = message
        tags = {user: world.tags_of(shown, user) for user in helpers}
        sets = []
        for survivors in (members, [user for user in members if user != max(helpers)]):
            places = world.places(survivors, self.pod)
            bitmap = encode_users(places, USERS)
            confirmations = None
            if world.params.confirm:
                asked = encode(ConfirmRequest(number, shown.order.view, bitmap))
                self.requests.append(Request(number, Stage.CONFIRM, asked))
                confirmations = self._confirmations(shown, survivors, asked, helpers)
            request = world.unmask_request(shown, victim, survivors, tags, confirmations)
            self.requests.append(Request(number, Stage.UNMASK, request, frozenset(places.tolist())))
            sets.append(bitmap)
        return sets

    def _helper(self, user: int, state: bytes | None = None) -> Client:
        return self.client(user, MemoryLedger(last=self.entries[user]), state)

    def _confirmations(
        self, shown: PodRound, survivors: list[int], asked: bytes, helpers: dict[int, Client]
    ) -> dict[int, bytes]:
        """Let copies of the helpers confirm these survivors to the victim."""
        found, pod = {}, shown.epoch.pod
        for user in survivors:
            if user == self.victim:
                continue
            copy = self.client(user, MemoryLedger(last=helpers[user]._journal.ledger.last()), helpers[user].save())
            message = decode_client_message(copy.confirm(asked))
            assert isinstance(message, Confirm)
            partners = [int(pod.users[each]) for each in shown.order.partners(pod.place[user]).tolist()]
            spot = [each for each in partners if each in survivors].index(self.victim)
            found[user] = message.tags[8 * spot : 8 * spot + 8]
        return found


@cache
def server_of(mode: Mode, confirm: bool) -> Server:
    """Requests take a while to prepare, and are the same in every interleaving."""
    return Server(mode, confirm)


class Node(RuleBasedStateMachine):
    """A node whose owner, machine and server do what they like."""

    server: Server
    seen: dict[str, int]

    @initialize()
    def start(self) -> None:
        """One process, with the ledger as the set-up has left it."""
        user = self.server.victim
        self.ledger = KeepingLedger()
        self.ledger._last = self.server.entries[user]
        self.ledger.saved = lambda: self.server.saved[user]
        self.processes = [self._process(self.server.saved[user])]
        self.copies: list[bytes] = []
        self.answers: dict[tuple[int, int], bytes] = {}
        self.packages: dict[int, bytes] = {}
        self.kinds: dict[tuple[int, int], bool] = {}

    def _process(self, state: bytes) -> Client:
        return self.server.client(self.server.victim, self.ledger, state)

    @rule(number=ANY)
    def ask_what_is_due(self, number: int) -> None:
        last: Entry = self.ledger.last()
        later = [one for one in self.server.requests if one.position > (last.round_number, last.stage)]
        due = min((one.position for one in later), default=None)
        self._ask(number, [one for one in later if one.position == due])

    @rule(number=ANY)
    def ask_what_is_due_again(self, number: int) -> None:
        self.ask_what_is_due(number)  # A rule of its own, since it should happen more often than the others.

    @rule(number=ANY)
    def ask_anything(self, number: int) -> None:
        self._ask(number, self.server.requests)

    @rule(number=ANY)
    def deal(self, number: int) -> None:
        dealt = self._try(lambda: self._chosen(number).share_keys(number // 10 % 3, again=True)) or []
        assert len(dealt) <= AHEAD
        for package in dealt:
            round_number = decode_client_message(package).round_number
            assert self.packages.setdefault(round_number, package) == package, "two packages for one round"

    @rule(number=ANY)
    def crash(self, number: int) -> None:
        self.processes[number % len(self.processes)] = self._process(self.ledger.saved())

    @rule()
    def start_another_process(self) -> None:
        self.processes = [*self.processes[-2:], self._process(self.ledger.saved())]

    @rule(number=ANY)
    def copy(self, number: int) -> None:
        self.copies.append(self._chosen(number).save())

    @rule(number=ANY)
    def put_a_copy_back(self, number: int) -> None:
        if self.copies:
            copy = self.copies[number // 10 % len(self.copies)]
            self.processes[number % len(self.processes)] = self._process(copy)

    def _chosen(self, number: int) -> Client:
        return self.processes[number % len(self.processes)]

    def _ask(self, number: int, requests: list[Request]) -> None:
        """Ask one of the processes one of some requests."""
        if not requests:
            return
        client, request = self._chosen(number), requests[number // 10 % len(requests)]
        match request.stage:
            case Stage.UPLOAD:
                update = self.server.world.updates[self.server.victim]
                answer = self._try(lambda: client.upload(request.data, update))
            case Stage.CONFIRM:
                answer = self._try(lambda: client.confirm(request.data))
            case _:
                answer = self._try(lambda: client.unmask(request.data))
        if not answer:
            return
        self.seen[request.stage.name] += 1
        assert self.answers.setdefault(request.position, answer) == answer, "two answers for one stage"
        if request.stage is Stage.UNMASK:
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


def run_interleavings(mode: Mode, confirm: bool, count: int, first: int = 0) -> dict[str, int]:
    """Run many interleavings; return how often each stage was answered and each error raised.

    `first` is the seed of the first lot: a failure is found again.
    """
    counts: dict[str, int] = defaultdict(int)
    for lot, start in enumerate(range(0, count, LOT)):
        machine = type("AnyNode", (Node,), {"server": server_of(mode, confirm), "seen": counts})
        run_state_machine_as_test(
            seed(first + lot)(machine),
            settings=settings(
                max_examples=min(LOT, count - start),
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
    return counts
