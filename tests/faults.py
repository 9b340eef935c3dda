"""Rounds over a network that drops, delays, repeats, reorders, corrupts, truncates, misdelivers and crashes.

A schedule is drawn from a seed, so a failure is repeated by its number. Whatever happens, a round must end with the
exact sum of the survivors that it declares, or with one of our own errors; never with a wrong sum, another exception,
or not at all (there is no waiting here: a stage closes when all messages were offered).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.protocol import Client, Policy, RoundParameters, Server, Stage
from sparsesecagg.protocol.simulation import make_identities, seeded_entropy


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


EXACT = "exact sum"


@dataclass
class Schedule:
    """One round with faults, all drawn from `seed`."""

    seed: int
    rng: np.random.Generator = field(init=False)
    seen: Counter[str] = field(default_factory=Counter)
    """Faults that were inflicted, and errors that were raised."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([2026, self.seed])
        self.rate = float(self.rng.choice([0.0, 0.03, 0.1, 0.3]))
        self.params, self.identities = self._draw_parameters()
        self.policy = Policy(min_survivors=1)
        self.clients = {user: self._client(user) for user in range(self.params.clients)}
        self.server = Server(self.params)
        self.contributions: dict[int, np.ndarray] = {}
        self.delayed: list[bytes] = []
        self.history: list[bytes] = []

    def run(self) -> str:
        """Return `EXACT`, or the name of the error that ended the round; raise on anything else."""
        inbox = dict.fromkeys(range(self.params.clients), b"")
        try:
            while self.server.stage is not Stage.DONE:
                inbox = self._run_stage(inbox)
        except SparseSecAggError as error:
            assert self.server.result is None, "a round that failed has no result"
            return type(error).__name__
        return self._verdict()

    def _run_stage(self, inbox: dict[int, bytes]) -> dict[int, bytes]:
        """Offer the server whatever arrives in this stage, in any order."""
        arriving, self.delayed = self.delayed, []
        for user, request in inbox.items():
            for answer in self._answers(user, request, inbox):
                arriving += self._on_the_way(answer)
        for place in self.rng.permutation(len(arriving)):
            try:
                self.server.receive(arriving[place])
            except SparseSecAggError as error:
                self.seen[type(error).__name__] += 1
        return self.server.close_stage()

    def _answers(self, user: int, request: bytes, inbox: dict[int, bytes]) -> list[bytes]:
        """Let a client answer, after its request went through the same network."""
        fault = self._draw(
            Fault.DROP, Fault.CORRUPT, Fault.TRUNCATE, Fault.MISDELIVER, Fault.CRASH, Fault.CRASH_AND_RESTORE
        )
        if fault in (Fault.DROP, Fault.CRASH):
            return []
        if fault is Fault.CRASH_AND_RESTORE:
            saved = self.clients[user].save()
            identity = self.identities[user] if self.identities else None
            self.clients[user] = Client.restore(saved, self.policy, seeded_entropy(self.seed, user, 1), identity)
        if fault is Fault.MISDELIVER:
            request = inbox[int(self.rng.choice(list(inbox)))]
        if fault in (Fault.CORRUPT, Fault.TRUNCATE):
            request = self._damage(request, fault)
        try:
            return [self._act(user, request)]
        except SparseSecAggError as error:
            self.seen[type(error).__name__] += 1
            return []

    def _act(self, user: int, request: bytes) -> bytes:
        client = self.clients[user]
        match client.stage:
            case Stage.ADVERTISE_KEYS:
                return client.advertise_keys()
            case Stage.SHARE_KEYS:
                return client.share_keys(request)
            case Stage.UPLOAD:
                return self._upload(user, request)
            case Stage.CONFIRM:
                return client.confirm(request)
            case _:
                return client.unmask(request)

    def _upload(self, user: int, request: bytes) -> bytes:
        contribution = np.zeros(self.params.layout.blocks * self.params.width, np.int64)

        def trace(where: Any, integers: np.ndarray) -> None:
            contribution[where] += integers

        update = self.rng.normal(0, 0.5, self.params.dim).astype(np.float32)
        weight = int(self.rng.integers(0, self.params.max_weight + 1)) if self.params.max_weight else 1
        answer = self.clients[user].upload(request, update, weight, trace)
        self.contributions[user] = contribution
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

    def _verdict(self) -> str:
        """Compare the result with the plain sum of the survivors that it declares."""
        result = self.server.result
        assert result is not None
        plain = np.zeros(self.params.layout.blocks * self.params.width, np.int64)
        for user in result.survivors:
            plain += self.contributions[user]
        blocks = plain.reshape(self.params.layout.blocks, self.params.width)
        assert np.array_equal(self.params.layout.flatten(blocks), result.total), f"WRONG SUM, seed {self.seed}"
        return EXACT

    def _client(self, user: int) -> Client:
        identity = self.identities[user] if self.identities else None
        return Client(user, self.params, self.policy, seeded_entropy(self.seed, user), identity)

    def _draw_parameters(self) -> tuple[RoundParameters, Any]:
        rng = self.rng
        clients = int(rng.integers(3, 8))
        pattern = str(rng.choice(["full", "pairwise", "committee"]))
        authenticated = bool(rng.random() < 0.25)
        people = make_identities(clients, "faults", seeded_entropy(self.seed, 999)) if authenticated else None
        params = RoundParameters.create(
            clients=clients,
            dim=int(rng.integers(1, 40)),
            pattern=pattern,
            alpha=float(rng.uniform(3 / clients, 1)),
            modulus_bits=int(rng.choice([8, 12, 16, 24, 32])),
            neighbours=int(rng.integers(2, 7)) if not authenticated and rng.random() < 0.3 else None,
            max_weight=int(rng.choice([0, 50])) if pattern != "pairwise" else 0,
            min_survivors=1,
            stripes=int(rng.integers(1, 4)),
            roster_digest=people[0].roster.digest if people else b"",
        )
        return params, people


def run_schedules(first: int, count: int) -> tuple[Counter[str], Counter[str]]:
    """Run many schedules; return how rounds ended, and what was inflicted and raised on the way."""
    endings: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        schedule = Schedule(seed)
        try:
            endings[schedule.run()] += 1
        except Exception as error:
            raise AssertionError(f"schedule {seed} ended with {type(error).__name__}") from error
        seen += schedule.seen
    return endings, seen
