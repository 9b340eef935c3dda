"""Runs over a network that drops, delays, repeats, reorders, corrupts, truncates, misdelivers and crashes.

A schedule is drawn from a seed, so a failure is repeated by its number. It is one run of several rounds. Whatever
happens, every round must end with the exact sum of the users that it names, or with one of our own errors; never with
a wrong sum, another exception, or not at all (there is no waiting here: a stage closes when all messages were offered).

Ten schedules share a world: parameters and everybody's randomness. Two of them run from the beginning; in the others
the set-up went without a fault, so it is done once and restored. What X25519 gave for the same keys is remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import InvalidInput, SparseSecAggError
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, RoundOptions, Server, Stage
from sparsesecagg.protocol.ledger import Entry, StateStep, save_state
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy

LARGEST = 9
"""Users of the largest cohort: three groups."""
SHARED, FROM_THE_BEGINNING = 10, 2
"""Schedules of one world, and how many of them have faults in the set-up too."""


class Fault(Enum):
    """What may happen to one message, or to the client that should send it."""

    NONE = "none"
    DROP = "drop"
    DELAY = "delay"
    REPEAT = "repeat"
    CORRUPT = "corrupt"
    TRUNCATE = "truncate"
    EXTEND = "extend"
    MISDELIVER = "misdeliver"
    REPLAY = "replay"
    CRASH = "crash"
    CRASH_AND_RESTORE = "crash and restore"
    CRASH_BEFORE_SENDING = "crash before sending"
    CRASH_WHILE_TRAINING = "crash while training"
    ROLL_BACK = "roll back"


EXACT = "exact sum"


class KeepingLedger(MemoryLedger):
    """A ledger that survives the process, with the state in it."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: Callable[[], bytes] = bytes
        """Asked for only after a crash, before anything else is recorded."""

    def record(self, entry: Entry, step: StateStep, *more: Any) -> None:
        """Keep the entry and the state."""
        super().record(entry, step, *more)
        self.saved = lambda: save_state(step.after)

    def begin(self, entry: Entry, saved: bytes) -> None:
        """Begin where another ledger was."""
        self._last = entry
        self.saved = lambda: saved


@cache
def people(clients: int, group_size: int | None) -> list[Identity]:
    """Identities take time to make, and say nothing about a run."""
    return make_identities(clients, "faults", seeded_entropy(999, clients), group_size=group_size)


class World:
    """What several schedules have in common, drawn from `seed`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.identities: list[Identity] | None = None
        self.params = self._draw_parameters(np.random.default_rng([2025, seed]))
        self.policy = Policy(min_anonymity=0, patterns=frozenset(PATTERNS))
        self.set_up: SetUp | None = None

    def identity(self, user: int) -> Identity | None:
        """Return a user's identity, in a run with a roster."""
        return self.identities[user] if self.identities else None

    @property
    def roster(self) -> Roster | None:
        """The roster of an authenticated run."""
        return self.identities[0].roster if self.identities else None

    def _draw_parameters(self, rng: np.random.Generator) -> Parameters:
        # Mostly few, because time grows with their square; six and more can be several groups.
        clients = int(rng.integers(6, LARGEST + 1) if rng.random() < 0.1 else rng.integers(3, 6))
        pattern = str(rng.choice(["full", "pairwise", "sliced", "sliced"]))
        authenticated = bool(rng.random() < 0.25)
        sizes = [size for size in range(3, clients + 1) if clients // -(-clients // size) >= 3]
        size = int(rng.choice(sizes)) if pattern == "sliced" else None
        options = RoundOptions(
            pattern=pattern,
            alpha=1.0 if pattern == "full" else float(rng.choice([0.1, 0.25, 0.5, 1.0])),
            group_size=size,
            modulus_bits=int(rng.integers(6, 33)),
            neighbours=int(rng.integers(2, 7)) if size in (None, clients) and rng.random() < 0.3 else None,
            max_weight=int(rng.choice([0, 50])),
            threshold=None,
            dropout=0.45,
            same_slices=bool(rng.random() < 0.3),
        )
        if authenticated:
            self.identities = people(clients, size)
            options = replace(options, neighbours=None)
        dim = int(rng.integers(10, 40))
        session = digest("seed of a schedule", self.seed.to_bytes(8, "little"))
        try:
            return Parameters.create(clients, dim, options, session=session, roster=self.roster)
        except InvalidInput as problem:
            assert problem.option == "modulus_bits", problem
            wide = replace(options, modulus_bits=32)
            return Parameters.create(clients, dim, wide, session=session, roster=self.roster)


@dataclass(frozen=True)
class SetUp:
    """A set-up that went without a fault."""

    server: bytes
    clients: list[bytes]
    entries: list[Entry]


@lru_cache(maxsize=4)
def world_of(seed: int) -> World:
    """Schedules that follow one another share a world."""
    return World(seed)


@dataclass
class Schedule:
    """One run with faults, all drawn from `seed`."""

    seed: int
    rng: np.random.Generator = field(init=False)
    seen: Counter[str] = field(default_factory=Counter)
    """Faults that were inflicted, and errors that were raised."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([2026, self.seed])
        self.rate = float(self.rng.choice([0.01, 0.02, 0.05, 0.15]))
        self.world = world_of(self.seed // SHARED)
        self.params, self.policy = self.world.params, self.world.policy
        users = range(self.params.clients)
        self.ledgers = [KeepingLedger() for _ in users]
        self.joined: set[int] = set()
        self.contributions: dict[int, np.ndarray] = {}
        self.delayed: list[bytes] = []
        self.history: list[bytes] = []
        self.server = Server(self.params, self.world.roster, threads=1)
        self.clients = [self._client(user) for user in users]

    def _restore_set_up(self) -> None:
        """Begin with a set-up that went without a fault."""
        if self.world.set_up is None:
            clean = Schedule(self.seed)
            clean.rate = 0.0
            clean._set_up()
            self.world.set_up = SetUp(
                clean.server.save(),
                [client.save() for client in clean.clients],
                [ledger.last() for ledger in clean.ledgers],
            )
        done = self.world.set_up
        self.server = Server.restore(done.server, self.world.roster, threads=1)
        for user, (ledger, entry) in enumerate(zip(self.ledgers, done.entries, strict=True)):
            ledger.begin(entry, done.clients[user])
            self._restore(user, done.clients[user])
        self.joined = set(range(self.params.clients))

    def run(self) -> list[str]:
        """Return for each round `EXACT`, or the name of the error that ended it; raise on anything else."""
        endings = []
        try:
            if self.seed % SHARED < FROM_THE_BEGINNING:
                self._set_up()
            else:
                self._restore_set_up()
        except SparseSecAggError as error:
            return [type(error).__name__]
        for _ in range(int(self.rng.choice([1, 1, 1, 2, 2, 3]))):
            self.contributions = {}
            try:
                inbox = self.server.begin_round()
                while self.server.stage is not Stage.SHARE_KEYS:
                    inbox = self._run_stage(inbox)
            except SparseSecAggError as error:
                assert self.server.result is None, "a round that failed has no result"
                endings.append(type(error).__name__)
            else:
                endings.append(self._verdict())
        return endings

    # The set-up

    def _set_up(self) -> None:
        inbox = self._run_stage(dict.fromkeys(range(self.params.clients), b""))
        for user, data in inbox.items():
            for _ in range(2):  # Who did not hear is told again, once.
                try:
                    self.clients[user].join(self._received(user, data, inbox) or b"")
                    self.joined.add(user)
                    break
                except SparseSecAggError as error:
                    self.seen[type(error).__name__] += 1
        self._offer([package for user in self.joined for package in self._packages(user)])

    def _packages(self, user: int) -> list[bytes]:
        """Let a client share keys; now and then it sends what it has sent before as well."""
        again = bool(self.rng.random() < self.rate)
        try:
            packages = self.clients[user].share_keys(self.server.round_number, again)
        except SparseSecAggError as error:
            self.seen[type(error).__name__] += 1
            return []
        return [part for package in packages for part in self._on_the_way(package)]

    # Stages

    def _run_stage(self, inbox: dict[int, bytes]) -> dict[int, bytes]:
        """Offer the server whatever arrives in this stage, in any order."""
        stage = self.server.stage
        arriving, self.delayed = self.delayed, []
        for user, request in inbox.items():
            for answer in self._answers(stage, user, request, inbox):
                arriving += self._on_the_way(answer)
        if stage is Stage.UPLOAD:
            for user in sorted(self.joined):
                if self._draw(Fault.CRASH) is Fault.NONE:
                    arriving += self._packages(user)
        self._offer(arriving)
        return self.server.close_stage()

    def _offer(self, arriving: list[bytes]) -> None:
        for place in self.rng.permutation(len(arriving)):
            try:
                self.server.receive(None, arriving[place])
            except SparseSecAggError as error:
                self.seen[type(error).__name__] += 1

    def _answers(self, stage: Stage, user: int, request: bytes, inbox: dict[int, bytes]) -> list[bytes]:
        """Let a client answer, after its request went through the same network."""
        received = self._received(user, request, inbox)
        if received is None:
            return []
        fault = self._draw(Fault.NONE, Fault.NONE, Fault.NONE, Fault.CRASH_BEFORE_SENDING, Fault.ROLL_BACK)
        before = self.clients[user].save() if fault is Fault.ROLL_BACK else b""
        try:
            answer = self._act(stage, user, received)
            if fault in (Fault.CRASH_BEFORE_SENDING, Fault.ROLL_BACK):
                # The answer is on record and did not leave. Asked again, the client repeats it; one that was restored
                # from before must not answer anew.
                self._restore(user, before if fault is Fault.ROLL_BACK else self.ledgers[user].saved())
                again = self._act(stage, user, received)
                assert stage is Stage.ADVERTISE_KEYS or again == answer, f"two answers, seed {self.seed}"
                return [again]
        except SparseSecAggError as error:
            self.seen[type(error).__name__] += 1
            return []
        return [answer]

    def _received(self, user: int, request: bytes, inbox: dict[int, bytes]) -> bytes | None:
        """Return what reaches a client, or None if it does not answer."""
        fault = self._draw(
            Fault.DROP, Fault.CORRUPT, Fault.TRUNCATE, Fault.MISDELIVER, Fault.CRASH, Fault.CRASH_AND_RESTORE
        )
        if fault in (Fault.DROP, Fault.CRASH):
            return None
        if fault is Fault.CRASH_AND_RESTORE:
            self._restore(user, self.clients[user].save())
        if fault is Fault.MISDELIVER:
            return inbox[int(self.rng.choice(list(inbox)))]
        return self._damage(request, fault) if fault in (Fault.CORRUPT, Fault.TRUNCATE) else request

    def _act(self, stage: Stage, user: int, request: bytes) -> bytes:
        client = self.clients[user]
        match stage:
            case Stage.ADVERTISE_KEYS:
                return client.advertise_keys()
            case Stage.UPLOAD:
                return self._upload(user, request)
            case _:
                return client.unmask(request)

    def _upload(self, user: int, request: bytes) -> bytes:
        contribution = np.zeros(self.params.dim, np.int64)

        def trace(where: Any, integers: np.ndarray) -> None:
            contribution[where] += integers

        update = self.rng.normal(0, 0.5, self.params.dim).astype(np.float32)
        weight = int(self.rng.integers(0, self.params.max_weight + 1)) if self.params.max_weight else 1
        if self.rng.random() < 0.5:  # A node accepts the header, and may crash while it trains.
            self.clients[user].accept(request)
            if self._draw(Fault.CRASH_WHILE_TRAINING) is Fault.CRASH_WHILE_TRAINING:
                self._restore(user, self.ledgers[user].saved())
        answer = self.clients[user].upload(request, update, weight, trace=trace)
        # The ledger may have answered with what it had: that is what was sent, then.
        self.contributions.setdefault(user, contribution)
        return answer

    def _on_the_way(self, answer: bytes) -> list[bytes]:
        """Return what arrives of a message in this stage."""
        self.history.append(answer)
        match self._draw(
            Fault.DROP, Fault.DELAY, Fault.REPEAT, Fault.CORRUPT, Fault.TRUNCATE, Fault.EXTEND, Fault.REPLAY
        ):
            case Fault.DROP:
                return []
            case Fault.DELAY:
                self.delayed.append(answer)
                return []
            case Fault.REPEAT:
                return [answer, answer]
            case Fault.REPLAY:
                return [answer, self.history[int(self.rng.integers(len(self.history)))]]
            case Fault.CORRUPT | Fault.TRUNCATE | Fault.EXTEND as fault:
                return [self._damage(answer, fault)]
            case _:
                return [answer]

    def _damage(self, data: bytes, fault: Fault) -> bytes:
        if fault is Fault.TRUNCATE or not data:
            return data[: int(self.rng.integers(len(data) + 1)) - 1] if data else data
        if fault is Fault.EXTEND:
            return data + self.rng.bytes(int(self.rng.integers(1, 20)))
        damaged = bytearray(data)
        for _ in range(int(self.rng.integers(1, 4))):
            damaged[int(self.rng.integers(len(damaged)))] ^= int(self.rng.integers(1, 256))
        return bytes(damaged)

    def _draw(self, *faults: Fault) -> Fault:
        fault = faults[int(self.rng.integers(len(faults)))] if self.rng.random() < self.rate else Fault.NONE
        self.seen[fault.value] += fault is not Fault.NONE
        return fault

    # Clients and parameters

    def _client(self, user: int) -> Client:
        entropy = seeded_entropy(self.world.seed, user)
        return Client(user, self.params, self.policy, entropy, self.world.identity(user), self.ledgers[user])

    def _restore(self, user: int, saved: bytes) -> None:
        entropy = seeded_entropy(self.world.seed, user, len(self.history))
        identity = self.world.identity(user)
        self.clients[user] = Client.restore(saved, self.policy, entropy, identity, self.ledgers[user])

    def _verdict(self) -> str:
        """Compare the result with the plain sum of the users that it names."""
        result = self.server.result
        assert result is not None
        plain = np.zeros(self.params.dim, np.int64)
        for user in result.survivors:
            assert self.server.groups.of(user).number not in result.lost
            plain += self.contributions[user]
        assert np.array_equal(plain, result.total), f"WRONG SUM, seed {self.seed}"
        self.seen["WronglyExcluded"] += len(self.server.excluded)
        return EXACT


def run_schedules(first: int, count: int) -> tuple[Counter[str], Counter[str]]:
    """Run many schedules; return how rounds ended, and what was inflicted and raised on the way."""
    endings: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    with cheap_runs():
        for seed in range(first, first + count):
            schedule = Schedule(seed)
            try:
                endings.update(schedule.run())
            except Exception as error:
                raise AssertionError(f"schedule {seed} ended with {type(error).__name__}: {error}") from error
            seen.update(schedule.seen)
    return endings, seen


# What makes many small runs cheap


class RememberedKey:
    """An X25519 private key whose public half and agreements are computed once."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def public_key(self) -> X25519PublicKey:
        """Return the public half."""
        return _public(self._data)

    def exchange(self, peer: X25519PublicKey) -> bytes:
        """Return what is agreed, which is the same on both sides."""
        return _agreed(self._data, peer.public_bytes_raw())


_REAL_KEY = X25519PrivateKey.from_private_bytes


@lru_cache(maxsize=10_000)
def _public(data: bytes) -> X25519PublicKey:
    return _REAL_KEY(data).public_key()


@lru_cache(maxsize=30_000)
def _agreed(data: bytes, peer: bytes) -> bytes:
    return _REAL_KEY(data).exchange(X25519PublicKey.from_public_bytes(peer))


@contextmanager
def cheap_runs() -> Iterator[None]:
    """Remember what X25519 gave, and open groups without starting a thread for it."""

    def in_turn(pool: ThreadPoolExecutor, act: Callable[..., Any], *each: Any) -> Iterator[Any]:
        return map(act, *each)

    remembered = patch.object(X25519PrivateKey, "from_private_bytes", RememberedKey)
    with remembered, patch.object(ThreadPoolExecutor, "map", in_turn):
        yield
