"""Whole runs: every message, the users' randomness, what is masked and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.patterns.base import Index
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, Server, Stage
from sparsesecagg.protocol.epoch import NO_CONTEXT, Epoch
from sparsesecagg.protocol.messages import EpochKeys, decode_server_message
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
        self.server = Server(params, identities[0].roster if identities else None)
        self._steps: list[Vector] = []
        self._rounds: list[Vector] = []
        self._epochs: list[Vector] = []
        self._inbox: dict[int, bytes] = {}
        self.context = NO_CONTEXT

    def _entropy(self, user: int) -> Callable[[int], bytes]:
        """Return a source of bytes that depend on their place in the run alone, and that are written down."""
        draws = self._draws[user]

        def read(size: int) -> bytes:
            draws.append(named_bytes(f"{self._name}/{user}/{len(draws)}", size))
            return draws[-1]

        return read

    # The epoch

    def set_up(self, absent: Collection[int] = (), late: Collection[int] = (), forge: Forge | None = None) -> None:
        """Advertise, join, and send the key packages of the first two rounds."""
        for user, client in enumerate(self.clients):
            if user not in absent:
                self._send(user, Stage.ADVERTISE_KEYS, client.advertise_keys(self.server.epoch_number))
        self.close()
        for user, data in self._inbox.items():
            self.clients[user].join(data)
        self._epochs.append(self._epoch())
        self.members = sorted(self._inbox)
        for user in self.members:
            if user not in late:
                self.share_keys(user, forge)

    def next_epoch(self, number: int) -> None:
        """Begin another epoch: everybody advertises again, groups are drawn anew."""
        self.server.begin_epoch(number)
        self._steps.append({"epoch": self.server.epoch_number})
        self.set_up()

    def share_keys(self, user: int, forge: Forge | None = None) -> None:
        """Let a user send the key packages of the next rounds."""
        for package in self.clients[user].share_keys(self.server.round_number):
            self._send(user, Stage.SHARE_KEYS, package, forge)

    # A round

    def round(
        self,
        *,
        context: bytes = NO_CONTEXT,
        missing: Collection[int] = (),
        silent: Collection[int] = (),
        forge: Forge | None = None,
    ) -> None:
        """Run a round: `missing` users send nothing in it, `silent` ones stop at UNMASK."""
        self.begin(context)
        for user, header in self._inbox.items():
            if user not in missing:
                self.upload(user, header, forge)
        for user in self.members:
            if user not in missing:
                self.share_keys(user)
        if not self.close():
            return
        for user, request in self._inbox.items():
            if user not in silent:
                self._send(user, Stage.UNMASK, self.clients[user].unmask(request), forge)
        if self.close():
            self._steps.append({"result": self._result()})

    def begin(self, context: bytes) -> None:
        """Begin the next round."""
        self.context = context
        self._inbox = self.server.begin_round(context=context)
        self._steps.append({"begin": self.server.round_number, "context": context.hex()})
        self._note_requests(Stage.UPLOAD)
        headers = [
            {
                "group": each.epoch.group.number,
                "members": integers(each.epoch.group.users[each.header.members]),
                "header_digest": each.header.digest.hex(),
            }
            for each in self.server.rounds
        ]
        self._rounds.append({"round": self.server.round_number, "groups": headers})

    def upload(self, user: int, header: bytes, forge: Forge | None) -> None:
        """Let a user upload, and write down what it masks."""
        coordinates: list[int] = []
        masked: list[int] = []

        def note(where: Index, values: NDArray[Any]) -> None:
            coordinates.extend(range(where.start, where.stop) if isinstance(where, slice) else where.tolist())
            masked.extend(integers(values))

        update = _update(f"{self._name}/{user}/{self.server.round_number}", self.params)
        answer = self.clients[user].upload(header, update, self._weights[user], context=self.context, trace=note)
        facts = {"weight": self._weights[user], "update": update.tolist()}
        facts |= {"coordinates": coordinates, "integers": masked}
        self._send(user, Stage.UPLOAD, answer, forge, **facts)

    def close(self) -> bool:
        """End the server's stage; return whether the run goes on."""
        step: Vector = {"close": self.server.stage.name}
        self._steps.append(step)
        try:
            self._inbox = self.server.close_stage()
        except SparseSecAggError as error:
            step["error"] = type(error).__name__
            return False
        stage = Stage.ADVERTISE_KEYS if self.server.stage is Stage.SHARE_KEYS else self.server.stage
        self._note_requests(stage)
        return True

    def _send(self, user: int, stage: Stage, data: bytes, forge: Forge | None = None, **facts: Any) -> None:
        sent = forge(user, data) if forge else data
        self.server.receive(user, sent)
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
        return {
            "about": self._about,
            "parameters": {"fields": fields_of(params), "bytes": params.encode().hex()},
            **({"roster": self._secrets} if self._secrets else {}),
            "users": [{"user": user, "randomness": [d.hex() for d in draws]} for user, draws in enumerate(self._draws)],
            "steps": self._steps,
            "contexts": {
                "parameters_digest": params.digest.hex(),
                "epochs": self._epochs,
                "rounds": self._rounds,
                "excluded": sorted(self.server.excluded),
            },
        }

    def _epoch(self) -> Vector:
        """Return the groups of the epoch, as the keys that were just published have them."""
        server = self.server
        groups = []
        for drawn in server.groups.groups:
            users: list[int] = drawn.users.tolist()
            data = next((self._inbox[user] for user in users if user in self._inbox), None)
            message = decode_server_message(data) if data else None
            made = (
                Epoch.of_user(self.params, message, server.roster, users[0]) if isinstance(message, EpochKeys) else None
            )
            groups.append(
                {
                    "users": users,
                    "present": integers(drawn.users[made.present]) if made else [],
                    "epoch_digest": made.digest.hex() if made else None,
                }
            )
        seed = self.params.epoch_seed(server.epoch_number, server.roster)
        return {"epoch": server.epoch_number, "seed": seed.hex(), "groups": groups}

    def _result(self) -> Vector:
        result = self.server.result
        assert result is not None
        weights = result.combined.weights
        return {
            "survivors": list(result.survivors),
            "total": integers(result.total),
            "contributors": integers(result.contributors),
            "weights": None if weights is None else integers(weights),
            "clipped": result.clipped,
            "lost": sorted(result.lost),
            "false_shares": [[holder, list(owners)] for holder, owners in sorted(result.false_shares.items())],
            "excluded": sorted(result.excluded),
        }


def _update(name: str, params: Parameters) -> NDArray[np.float64]:
    """Return an update whose quantised values are integers already: nothing depends on how a library rounds.

    One value in sixteen lies far beyond the clip. With weights, values are multiples of four, and weights of sixteen.
    """
    draws = np.frombuffer(named_bytes(f"{name}/update", 8 * params.dim), "<u8").astype(object)
    limit = params.quantizer.limit
    # Where the library rounds in 32-bit floats it would move large integers, if rarely.
    largest = limit if limit >= 1 << 16 else min(100, limit)
    step = 4 if params.max_weight else 1
    values = [(int(draw) >> 8) % (2 * largest + 1) // step * step - largest // step * step for draw in draws]
    values = [
        (-1) ** int(draw & 1) * 8 * limit if draw & 0xF0 == 0 else value
        for draw, value in zip(draws, values, strict=True)
    ]
    return np.array(values, np.float64) / params.quantizer.scale
