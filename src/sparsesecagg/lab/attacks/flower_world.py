"""Nodes of Flower with the real mod, in one process, and a server that lies to them. User u is node 100 + u."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.flower import SecAgg, secagg_mod
from sparsesecagg.flower.messages import CONTROL, read_packet
from sparsesecagg.flower.node import LEDGER, ROSTER, RUN_KEY
from sparsesecagg.lab.attacks.base import Play
from sparsesecagg.lab.attacks.local_grid import LocalGrid, stage_of, travel
from sparsesecagg.lab.attacks.world import TOLERANCE
from sparsesecagg.lab.audit.adversary import Adversary
from sparsesecagg.protocol import RoundOptions
from sparsesecagg.protocol.messages import Unmask, Upload, decode_client_message
from sparsesecagg.protocol.server_group import GroupRound

_LOG = logging.getLogger("flwr")
MOST_NODES = 8  # Each node writes to a ledger in a file, so a few have to do.
DIM = 40
FIRST = 100
CLIP = 2.0
RATE = "lr"

Before = Callable[[int, Message], None]
Train = Callable[[int, Message], tuple[NDArray[np.float32], dict[str, Any]]]
"""From user and message to what training adds to the model, and the metrics."""


class FlowerWorld:
    """A federation among honest nodes."""

    def __init__(self, play: Play) -> None:
        self.play, setting = play, play.setting
        self.nodes = min(setting.clients, MOST_NODES)
        self.victim = self.nodes - 1
        rng = np.random.default_rng([setting.seed, setting.clients])
        signs = rng.choice([-1.0, 1.0], (self.nodes, DIM))
        self.updates = (signs * rng.uniform(0.2, 1, (self.nodes, DIM))).astype(np.float32)
        self.train: Train = self._train
        self.uploads: dict[int, Upload] = {}
        self._folder = play.folder()
        self.roster = self._enrol() if setting.authenticated else None
        self.spy: Callable[[int, Message], Message | None] = lambda user, reply: None
        """Sees every reply before the server does, and may change it."""
        self.grid = LocalGrid(self._app(), self.nodes, after=self._note, node_config=self._node_config)
        play.cleanup.callback(_LOG.setLevel, _LOG.level)
        _LOG.setLevel(logging.CRITICAL)  # Flower and the mod log what goes wrong here, which is the point.

    def start(self, before: Before | None = None, *, roster: bool = True, **settings: Any) -> NDArray[Any]:
        """Play a round with the real strategy, which a lie may step into; return the new model."""
        self.grid.before = None if before is None else lambda node, message: before(node - FIRST, message)
        self.strategy = SecAgg(
            FedAvg(fraction_evaluate=0.0),
            RoundOptions(alpha=1.0, modulus_bits=32, clip=CLIP),
            gain=1.0,
            roster=self.roster if roster else None,
            timeout=0.3,
            **settings,
        )
        self.strategy.downlink_bits = 32
        start = ArrayRecord({"w": Array(np.zeros(DIM, np.float32))})
        result = self.strategy.start(self.grid, start, 1, 0.3, train_config=ConfigRecord({RATE: 1.0}))
        return result.arrays["w"].numpy()

    def ask(self, user: int, message: Message) -> Message:
        """Give a node a message of a server's own making."""
        reply = self.grid.app(travel(message), self.grid.contexts[FIRST + user])
        self._note_reason(reply)
        return reply

    def right(self, values: NDArray[Any]) -> int:
        """Count the values of the victim's update that somebody has got right."""
        return int(np.count_nonzero(np.abs(values - self.updates[self.victim]) < TOLERANCE * CLIP))

    def adversary(self) -> Adversary:
        """Return the adversary with the uploads of the round."""
        shown = self.shown
        found = Adversary(shown.epoch, shown.header.round_number, shown.packages)
        for user, upload in self.uploads.items():
            found.take_upload(user, shown.header, upload)
        return found

    @property
    def shown(self) -> GroupRound:
        """The round under way: one group."""
        assert self.strategy._run is not None  # noqa: S101
        return self.strategy._run.server.rounds[0]

    # Nodes

    def _train(self, user: int, message: Message) -> tuple[NDArray[np.float32], dict[str, Any]]:
        rate = np.float32(float(str(message.content.config_records["config"][RATE])))
        return rate * self.updates[user], {}

    def _app(self) -> ClientApp:
        app = ClientApp()

        def train(message: Message, context: Context) -> Message:
            change, metrics = self.train(int(context.node_config["partition-id"]), message)
            moved = message.content.array_records["arrays"]["w"].numpy() + change
            content = RecordDict({"arrays": ArrayRecord({"w": Array(moved)}), "metrics": MetricRecord(metrics)})
            return Message(content, reply_to=message)

        def evaluate(message: Message, context: Context) -> Message:
            loss = float(np.abs(self.updates[int(context.node_config["partition-id"])]).mean())
            return Message(RecordDict({"metrics": MetricRecord({"loss": loss})}), reply_to=message)

        app.train(mods=[secagg_mod])(train)
        app.evaluate(mods=[secagg_mod])(evaluate)
        return app

    def _node_config(self, user: int) -> dict[str, Any]:
        owned = {ROSTER: str(self.roster), RUN_KEY: str(self._folder / f"{user}.run")} if self.roster else {}
        return {LEDGER: str(self._folder / f"ledger-{user}"), **owned}

    def _enrol(self) -> Path:
        folder, entries = self._folder, []
        for user in range(self.nodes):
            secret = os.urandom(32)
            (folder / f"{user}.run").write_bytes(secret)
            entries.append(enrol(IdentityKey(os.urandom(32)), "attack", RunSecret(secret)))
        path = folder / "roster.json"
        Roster("attack", tuple(entries)).with_seed(os.urandom(32)).save(path)
        return path

    def _note(self, node: int, reply: Message) -> list[Message]:
        self._note_reason(reply)
        answer = answer_of(reply)
        if isinstance(answer, Upload):
            self.uploads[answer.sender] = answer
        return [self.spy(node - FIRST, reply) or reply]

    def _note_reason(self, reply: Message) -> None:
        told = str(reply.error.reason) if reply.has_error() else dict(reply.content.get(CONTROL, {})).get("refused", "")
        if told:
            self.play.refusals.append(str(told).removeprefix("sparsesecagg: ").partition(":")[0])


def answer_of(reply: Message) -> Unmask | Upload | None:
    """Return the masked words or the shares in a reply; None if there are none."""
    if reply.has_error() or CONTROL not in reply.content or stage_of(reply) not in ("UPLOAD", "UNMASK"):
        return None
    packet = read_packet(reply.content)
    message = decode_client_message(packet.payload) if packet.payload else None
    return message if isinstance(message, Unmask | Upload) else None


def changed(message: Message, **fields: Any) -> Message:
    """Return a copy of a message with other fields in its control record."""
    copied = travel(message)
    copied.content[CONTROL] = ConfigRecord({**copied.content.config_records[CONTROL], **fields})
    return copied
