"""Whole runs: every message, the users' randomness, what is masked and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, Server, Stage
from sparsesecagg.protocol.order import NO_TERMS
from sparsesecagg.protocol.pod_round import PodRound
from vectors.form import Vector, integers, named_bytes
from vectors.wire import fields_of

POLICY = Policy(min_anonymity=1, patterns=frozenset(PATTERNS))
"""Vectors are about the protocol: their groups are small, and they have `pairwise` too."""

Forge = Callable[[int, bytes], bytes]
"""Returns what a lying user sends in place of its answer."""


class Recorder:
    """Drives clients and server through a run, and takes notes."""

    def __init__(
        self,
        name: str,
        about: str,
        params: Parameters,
        *,
        identities: Sequence[Identity] = (),
        secrets: Vector | None = None,
        weights: Sequence[int] = (),
    ) -> None:
        self._name, self._about, self.params, self._secrets = name, about, params, secrets
        self._weights = weights or [1] * params.clients
        self._draws: list[list[bytes]] = [[] for _ in range(params.clients)]
        self.clients = [
            Client(
                user,
                params,
                POLICY,
                entropy=self._entropy(user),
                identity=identities[user] if identities else None,
                ledger=MemoryLedger(),
            )
            for user in range(params.clients)
        ]
        self.server = Server(params, server_seed(name), identities[0].roster if identities else None)
        self._steps: list[Vector] = []
        self._rounds: list[Vector] = []
        self._epochs: list[list[Vector]] = []
        self._inbox: dict[int, bytes] = {}
        self.terms = NO_TERMS

    def _entropy(self, user: int) -> Callable[[int], bytes]:
        """Return a source of bytes that depend on their place in the run alone, and that are written down."""
        draws = self._draws[user]

        def read(size: int) -> bytes:
            draws.append(named_bytes(f"{self._name}/{user}/{len(draws)}", size))
            return draws[-1]

        return read

    # The epoch

    def set_up(self, absent: Collection[int] = (), late: Collection[int] = (), silent: Collection[int] = ()) -> None:
        """Advertise, draw, join, and deal the packages of the first two rounds. `silent` jurors do not reveal."""
        for user, client in enumerate(self.clients):
            if user not in absent:
                self._send(user, Stage.ADVERTISE_KEYS, client.advertise_keys())
        self.close()
        while self.server.stage is Stage.DRAW:
            for user, request in self._inbox.items():
                if user not in silent:
                    self._send(user, Stage.DRAW, self.clients[user].reveal(request))
            self.close()
        for user, data in self._inbox.items():
            self.clients[user].join(data)
        self.members = sorted(self._inbox)
        for user in self.members:
            if user not in late:
                self.deal(user)

    def next_epoch(self) -> None:
        """Begin another epoch: everybody advertises again, another jury draws."""
        self._epochs.append(self._pods())
        self.server.begin_epoch()
        self._steps.append({"epoch": self.server.epoch_number})
        self.set_up()

    def deal(self, user: int) -> None:
        """Let a user send the packages of the next rounds."""
        for package in self.clients[user].share_keys(self.server.round_number):
            self._send(user, Stage.SHARE_KEYS, package)

    # A round

    def round(
        self,
        *,
        terms: bytes = NO_TERMS,
        missing: Collection[int] = (),
        lost: Collection[int] = (),
        unconfirmed: Collection[int] = (),
        silent: Collection[int] = (),
        forge: Forge | None = None,
    ) -> None:
        """Run a round: `missing` users send nothing in it, uploads of `lost` ones never arrive.

        `unconfirmed` users stop at CONFIRM, `silent` ones at UNMASK.
        """
        self.begin(terms)
        forge = forge or (lambda _, answer: answer)
        for user, order in self._inbox.items():
            if user not in missing:
                self.upload(user, order, forge, lost=user in lost)
        for user in self.members:
            if user not in missing:
                self.deal(user)
        if not self.close():
            return
        if self.params.confirm:
            for user, request in self._inbox.items():
                if user not in unconfirmed:
                    self._send(user, Stage.CONFIRM, self.clients[user].confirm(request))
            self.close()
        for user, request in self._inbox.items():
            if user not in silent:
                self._send(user, Stage.UNMASK, self.clients[user].unmask(request), forge)
        if self.close():
            self._steps.append({"result": self._result()})

    def begin(self, terms: bytes) -> None:
        """Begin the next round."""
        self.terms = terms
        self._inbox = self.server.begin_round(terms=terms)
        self._steps.append({"begin": self.server.round_number, "terms": terms.hex()})
        self._note_requests(Stage.UPLOAD)
        self._rounds.append(
            {"round": self.server.round_number, "pods": [_order_of(each) for each in self.server.pod_rounds]}
        )

    def upload(self, user: int, order: bytes, forge: Forge, lost: bool) -> None:
        """Let a user upload, and write down what it masks."""
        pod = self.server.groups.pod_of(user)
        assert pod is not None
        committee = pod.first + int(pod.committee_of[pod.place[user]])
        served = self.params.slices.of(committee, self.server.round_number)
        masked: list[Vector] = []

        def note(where: slice | NDArray[np.int64], values: NDArray[Any]) -> None:
            if isinstance(where, slice):
                masked.append({"slice": served[len(masked)], "integers": integers(values)})
            else:
                masked.append({"coordinates": integers(where), "integers": integers(values)})

        update = _update(f"{self._name}/{user}/{self.server.round_number}", self.params)
        answer = self.clients[user].upload(order, update, self._weights[user], terms=self.terms, trace=note)
        facts = {"weight": self._weights[user], "update": update.tolist(), "masked": masked}
        self._send(user, Stage.UPLOAD, answer, forge, **facts, **({"lost": True} if lost else {}))

    def close(self) -> bool:
        """End the server's stage; return whether the run goes on."""
        step: Vector = {"close": self.server.stage.name}
        self._steps.append(step)
        try:
            self._inbox = self.server.close_stage()
        except SparseSecAggError as error:
            step["error"] = type(error).__name__
            return False
        stage = Stage.ADVERTISE_KEYS if self.server.stage is Stage.DONE else self.server.stage
        self._note_requests(stage)
        return True

    def _send(self, user: int, stage: Stage, data: bytes, forge: Forge | None = None, **facts: Any) -> None:
        sent = forge(user, data) if forge else data
        if "lost" not in facts:
            self.server.receive(sent, sender=user)
        lie = {"forged": True} if sent != data else {}
        self._steps.append({"from": user, "stage": stage.name, **facts, **lie, "bytes": sent.hex()})

    def _note_requests(self, stage: Stage) -> None:
        """Note what the server sends; the same bytes to several users make one entry."""
        receivers: dict[bytes, list[int]] = {}
        for user, data in self._inbox.items():
            receivers.setdefault(data, []).append(user)
        for data, users in receivers.items():
            self._steps.append({"to": users, "stage": stage.name, "bytes": data.hex()})

    # The vector

    def vector(self) -> Vector:
        """Return everything that was noted."""
        params = self.params
        source = {"roster": self._secrets} if self._secrets else {"server_seed": server_seed(self._name).hex()}
        return {
            "about": self._about,
            "parameters": {"fields": fields_of(params), "bytes": params.encode().hex()},
            **source,
            "users": [{"user": user, "randomness": [d.hex() for d in draws]} for user, draws in enumerate(self._draws)],
            "steps": self._steps,
            "contexts": {
                "parameters_digest": params.digest.hex(),
                "epochs": [*self._epochs, self._pods()],
                "rounds": self._rounds,
            },
        }

    def _pods(self) -> list[Vector]:
        return [_pod_of(self.server, index) for index in range(len(self.server.groups.pods))]

    def _result(self) -> Vector:
        result = self.server.result
        assert result is not None
        return {
            "survivors": list(result.survivors),
            "total": integers(result.total),
            "contributors_per_slice": integers(result.contributors_per_slice),
            "weight_per_slice": None if result.weight_per_slice is None else integers(result.weight_per_slice),
            "clipped": result.clipped,
            "lost": sorted(result.lost),
            "false_shares": [[holder, list(owners)] for holder, owners in sorted(result.false_shares.items())],
        }


def server_seed(name: str) -> bytes:
    """Return the server's part of the draw in a plain run."""
    return named_bytes(f"{name}/server seed", 32)


def _pod_of(server: Server, index: int) -> Vector:
    group, pod = server.groups.pods[index], server._epoch.pods[index]
    return {
        "users": integers(group.users),
        "committees": [integers(group.users[members]) for members in group.committees],
        "threshold": server.params.threshold_of(len(group)),
        "min_survivors": [server.params.survivors_of(len(members)) for members in group.committees],
        "present": [] if pod is None else integers(group.users[pod.epoch.present]),
        "epoch_digest": None if pod is None else pod.epoch.digest.hex(),
    }


def _order_of(pod_round: PodRound) -> Vector:
    order = pod_round.order
    return {
        "pod": order.epoch.pod.index,
        "members": integers(order.epoch.pod.users[order.members]),
        "chain": order._chain.hex(),
        "order_digest": order.digest.hex(),
    }


def _update(name: str, params: Parameters) -> NDArray[np.float64]:
    """Return an update whose quantised values are integers already: nothing depends on how a library rounds.

    One value in sixteen lies far beyond the clip. With weights, values are multiples of eight: weights are, too.
    """
    draws = np.frombuffer(named_bytes(f"{name}/update", 8 * params.dim), "<u8").astype(object)
    limit = params.quantizer.limit
    # Where the library rounds in 32-bit floats it would move large integers, if rarely.
    largest = limit if limit >= 1 << 16 else min(100, limit)
    step = 8 if params.max_weight else 1
    values = [(int(draw) >> 8) % (2 * largest + 1) // step * step - largest // step * step for draw in draws]
    values = [
        (-1) ** int(draw & 1) * 8 * limit if draw & 0xF0 == 0 else value
        for draw, value in zip(draws, values, strict=True)
    ]
    return np.array(values, np.float64) / params.quantizer.scale
