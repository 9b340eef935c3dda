"""Whole rounds: every message, the users' randomness, what is masked and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.patterns import Committee
from sparsesecagg.protocol import Client, RoundParameters, Server, Stage
from sparsesecagg.protocol.membership import Directory, Members
from sparsesecagg.protocol.messages import KeyDirectory, ShareDelivery, decode_server_message, decode_users
from sparsesecagg.protocol.stages import STAGES_WITH_ROSTER
from vectors.form import Vector, integers, named_bytes
from vectors.plans import Round
from vectors.wire import fields_of

DRAWS = ("sealing_private", "mask_private", "private_seed", "nonce", "shamir_seed", "rounding_seed")
"""What a client reads from its source of randomness, in this order."""


def entropy_from(draws: Sequence[bytes]) -> Callable[[int], bytes]:
    """Return a source of randomness that hands out these bytes, each asked for by its exact size."""
    left = iter(draws)

    def read(size: int) -> bytes:
        drawn = next(left)
        assert len(drawn) == size, "a client reads its randomness in another order or size than was written down"
        return drawn

    return read


def run(name: str, plan: Round) -> Vector:
    """Run the round and write everything down."""
    return _Recorder(name, plan).run()


class _Recorder:
    """Drives clients and server, and takes notes."""

    def __init__(self, name: str, plan: Round) -> None:
        self.plan, self.params = plan, plan.params
        users = range(self.params.clients)
        sizes = (32, 32, 32, 16, 32, 16)
        self.draws = [
            [named_bytes(f"{name}/{user}/{draw}", size) for draw, size in zip(DRAWS, sizes, strict=True)]
            for user in users
        ]
        self.weights = plan.weights or [1] * self.params.clients
        self.updates = [_update(name, user, self.params) for user in users]
        self.clients = [
            Client(
                user,
                self.params,
                entropy=entropy_from(self.draws[user]),
                identity=plan.identities[user] if plan.identities else None,
            )
            for user in users
        ]
        self.server = Server(self.params)
        self.messages: list[Vector] = []
        self.masked: dict[int, list[Vector]] = {}

    def run(self) -> Vector:
        """Return the whole vector."""
        inbox = dict.fromkeys(range(self.params.clients), b"")
        while self.server.stage is not Stage.DONE:
            stage = self.server.stage
            self._note_requests(stage, inbox)
            for user, request in inbox.items():
                if self._alive(user, stage):
                    answer = self._act(user, stage, request)
                    self.server.receive(answer, sender=user)
                    self.messages.append({"stage": stage.name, "from": user, "bytes": answer.hex()})
            inbox = self.server.close_stage()
        return self._vector()

    def _note_requests(self, stage: Stage, inbox: Mapping[int, bytes]) -> None:
        """Note what the server sends; the same bytes to several users make one entry."""
        receivers: dict[bytes, list[int]] = {}
        for user, data in inbox.items():
            receivers.setdefault(data, []).append(user)
        for data, users in receivers.items():
            if data:
                self.messages.append({"stage": stage.name, "to": users, "bytes": data.hex()})

    def _alive(self, user: int, stage: Stage) -> bool:
        order = STAGES_WITH_ROSTER
        return user not in self.plan.drops or order.index(self.plan.drops[user]) > order.index(stage)

    def _act(self, user: int, stage: Stage, request: bytes) -> bytes:
        client = self.clients[user]
        match stage:
            case Stage.ADVERTISE_KEYS:
                return client.advertise_keys()
            case Stage.SHARE_KEYS:
                return client.share_keys(request)
            case Stage.UPLOAD:
                return client.upload(request, self.updates[user], self.weights[user], self._trace(user))
            case Stage.CONFIRM:
                return client.confirm(request)
            case _:
                return client.unmask(request)

    def _trace(self, user: int) -> Callable[[slice | NDArray[np.int64], NDArray[Any]], None]:
        """Note the integers that are masked, by block."""
        notes = self.masked.setdefault(user, [])
        width = self.params.width

        def note(where: slice | NDArray[np.int64], values: NDArray[Any]) -> None:
            if not isinstance(where, slice):
                notes.append({"blocks": integers(where), "integers": integers(values)})
            elif where.start % width == 0:
                notes.append({"block": where.start // width, "integers": integers(values)})
            else:  # The digits behind the values of the same block.
                notes[-1]["integers"] += integers(values)

        return note

    def _vector(self) -> Vector:
        result = self.server.result
        assert result is not None
        directory, members = self._memberships()
        graph, params = directory.graph, self.params
        authentication = {"roster": self.plan.secrets} if self.plan.secrets else {}
        return {
            "about": self.plan.about,
            "parameters": {"fields": fields_of(params), "bytes": params.encode().hex()},
            **authentication,
            "users": [
                {
                    "user": user,
                    **({"silent_from": self.plan.drops[user].name} if user in self.plan.drops else {}),
                    "randomness": {name: draw.hex() for name, draw in zip(DRAWS, self.draws[user], strict=True)},
                    "weight": self.weights[user],
                    "update": self.updates[user].tolist(),
                    "masked": self.masked.get(user, []),
                }
                for user in range(params.clients)
            ],
            "contexts": {
                "parameters_digest": params.digest.hex(),
                "view": params.view.hex(),
                "directory_digest": directory.digest.hex(),
                "neighbours": [
                    {"user": user, "neighbours": integers(graph.neighbours(user))} for user in directory.users.tolist()
                ],
                "members": integers(members.users),
                "members_context": members.context.hex(),
                **_committees(members),
            },
            "messages": self.messages,
            "aggregate": {
                "survivors": list(result.survivors),
                "dropped": dict(result.dropped),
                "total": integers(result.total),
                "contributors_per_block": integers(result.contributors_per_block),
                "weight_per_block": None if result.weight_per_block is None else integers(result.weight_per_block),
                "clipped": result.clipped,
            },
        }

    def _memberships(self) -> tuple[Directory, Members]:
        """Return what clients and server have computed alike, from the messages."""
        sent = [decode_server_message(bytes.fromhex(note["bytes"])) for note in self.messages if "to" in note]
        directory = Directory(self.params, next(message for message in sent if isinstance(message, KeyDirectory)))
        delivery = next(message for message in sent if isinstance(message, ShareDelivery))
        users = decode_users(delivery.users, self.params.clients)
        return directory, Members(directory, users, delivery.nonces)


def _committees(members: Members) -> Vector:
    """Return who sends which block, where that is public and not everybody."""
    if not isinstance(members.pattern, Committee):
        return {}
    return {
        "committees": [integers(members.pattern.committee(block)) for block in range(members.pattern.layout.blocks)]
    }


def _update(name: str, user: int, params: RoundParameters) -> NDArray[np.float64]:
    """Return an update whose quantised values are integers already: nothing depends on how a library rounds.

    One value in sixteen lies far beyond the clip. With weights, values are multiples of eight: weights are, too.
    """
    draws = np.frombuffer(named_bytes(f"{name}/{user}/update", 8 * params.dim), "<u8").astype(object)
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
