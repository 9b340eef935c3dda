"""What a client keeps between messages, in its Flower context.

A deployment starts a process for every message, so all state lives in `Context.state`, which never leaves the node. A
simulation may run a second message to a busy node on a stale copy of it; therefore the round is part of the state and
whatever does not fit is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ConfigRecord, Context

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.engines.flower.errors import StaleContext
from sparsesecagg.engines.flower.keys import SEED_SIZE, KeySeed
from sparsesecagg.engines.flower.records import CONTROL
from sparsesecagg.errors import WrongRound
from sparsesecagg.protocol import Client, Policy


@dataclass
class NodeState:
    """The keys that the node has announced and not used yet, and the client of the round under way."""

    seed: KeySeed | None = None
    round_number: int = -1
    client: bytes = b""
    """A saved `Client`, secrets and all."""

    @staticmethod
    def load(context: Context) -> NodeState:
        """Read the state; that of another run is none of ours."""
        record = context.state.get(CONTROL)
        if not isinstance(record, ConfigRecord) or record.get("run") != context.run_id:
            return NodeState()
        seed, number, client = record.get("seed"), record.get("round"), record.get("client")
        return NodeState(
            seed=KeySeed(seed) if isinstance(seed, bytes) and len(seed) == SEED_SIZE else None,
            round_number=number if isinstance(number, int) else -1,
            client=client if isinstance(client, bytes) else b"",
        )

    def store(self, context: Context) -> None:
        """Write the state down."""
        context.state[CONTROL] = ConfigRecord(
            {
                "run": context.run_id,
                "seed": self.seed.reveal() if self.seed else b"",
                "round": self.round_number,
                "client": self.client,
            }
        )

    def take_seed(self) -> KeySeed:
        """Return the announced keys and forget them: keys serve one round."""
        if self.seed is None:
            raise StaleContext("it holds no keys that were advertised for this round")
        seed, self.seed = self.seed, None
        return seed

    def begin(self, client: Client) -> None:
        """Keep the client of a round that has begun."""
        self.round_number, self.client = client.params.round_number, client.save()

    def resume(self, round_number: int, policy: Policy, identity: Identity | None = None) -> Client:
        """Return the client of the round under way, if it is this round."""
        if not self.client:
            raise StaleContext(f"it holds no client of round {round_number}")
        if self.round_number != round_number:
            raise WrongRound(round_number, self.round_number)
        return Client.restore(self.client, policy, identity=identity)

    def end(self) -> None:
        """Forget the client of a round that is over."""
        self.client = b""
