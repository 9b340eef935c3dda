"""Small rounds for tests, driven stage by stage so that a test can step in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.protocol import Client, Policy, RoundParameters, Server, Stage
from sparsesecagg.protocol.simulation import make_identities, seeded_entropy

LENIENT = Policy(min_survivors=1)


def small(**settings: object) -> RoundParameters:
    """Return parameters of a small round; any of them can be overridden."""
    defaults: dict[str, object] = {"clients": 5, "dim": 40, "pattern": "full", "min_survivors": 1}
    return RoundParameters.create(**{**defaults, **settings})  # type: ignore[arg-type]


def identities(clients: int, seed: int = 0) -> list[Identity]:
    """Return enrolled identities."""
    return make_identities(clients, "test", seeded_entropy(seed, 999))


def updates(params: RoundParameters, seed: int = 0) -> list[np.ndarray]:
    """Return random updates, some of them beyond the clip."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(params.dim) * params.clip / 3).astype(np.float32) for _ in range(params.clients)]


@dataclass
class Round:
    """All clients and the server of one round; `step` runs one stage."""

    params: RoundParameters
    policy: Policy = LENIENT
    seed: int = 0
    identities: list[Identity] | None = None
    clients: dict[int, Client] = field(init=False)
    server: Server = field(init=False)
    inbox: dict[int, bytes] = field(init=False)
    """The server's last message to each client."""

    def __post_init__(self) -> None:
        self.clients = {
            user: Client(
                user,
                self.params,
                self.policy,
                seeded_entropy(self.seed, user),
                self.identities[user] if self.identities else None,
            )
            for user in range(self.params.clients)
        }
        self.server = Server(self.params)
        self.inbox = dict.fromkeys(range(self.params.clients), b"")
        self.updates = updates(self.params, self.seed)

    def answer(self, user: int) -> bytes:
        """Return what the client answers to the server's last message."""
        client, data = self.clients[user], self.inbox[user]
        actions: dict[Stage, Callable[[], bytes]] = {
            Stage.ADVERTISE_KEYS: client.advertise_keys,
            Stage.SHARE_KEYS: lambda: client.share_keys(data),
            Stage.UPLOAD: lambda: client.upload(data, self.updates[user]),
            Stage.CONFIRM: lambda: client.confirm(data),
            Stage.UNMASK: lambda: client.unmask(data),
        }
        return actions[client.stage]()

    def step(self, silent: Iterable[int] = ()) -> None:
        """Run one stage, without the silent users."""
        for user in [user for user in self.inbox if user not in set(silent)]:
            self.server.receive(self.answer(user))
        self.inbox = self.server.close_stage()

    def run_to(self, stage: Stage) -> Round:
        """Run until the server waits for the messages of `stage`."""
        while self.server.stage is not stage:
            self.step()
        return self
