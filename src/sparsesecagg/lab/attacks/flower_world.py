"""Nodes of Flower with the real mod, in one process, and a server that lies to them."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Result
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.flower.mod import secagg_mod
from sparsesecagg.flower.node import LEDGER, ROSTER, RUN_KEY
from sparsesecagg.flower.records import read_packet
from sparsesecagg.flower.strategy import SecAgg
from sparsesecagg.lab.attacks.base import Setting
from sparsesecagg.lab.attacks.local_grid import LocalGrid, stage_of, travel
from sparsesecagg.lab.attacks.world import TOLERANCE, World
from sparsesecagg.protocol.messages import (
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    decode_server_message,
    encode,
    encode_users,
)
from sparsesecagg.protocol.pod_round import PodRound

_MEMORY = Path("/dev/shm")  # noqa: S108
_LOG = logging.getLogger("flwr")
MOST_NODES = 8
"""Each node writes to a ledger in a file, so a few have to do."""
DIM = 40
_FIRST = 100
_CLIP = 2.0
RATE = "lr"


class FlowerWorld(World):
    """A federation among honest nodes; user u is node 100 + u. Use it as a context: ledgers are files."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.nodes = min(setting.clients, MOST_NODES)
        rng = np.random.default_rng([setting.seed, setting.clients])
        signs = rng.choice([-1.0, 1.0], (self.nodes, DIM))
        self.updates = dict(enumerate((signs * rng.uniform(0.2, 1, (self.nodes, DIM))).astype(np.float32)))
        self.uploads: dict[int, Upload] = {}
        # In memory where there is such a folder: a ledger waits for the disk.
        self._folder = tempfile.TemporaryDirectory(prefix="attack-", dir=_MEMORY if _MEMORY.is_dir() else None)
        self.roster = self._enrol() if setting.authenticated else None
        self.grid = LocalGrid(self._app(), self.nodes, after=self._note, node_config=self._node_config)
        self.spy: Callable[[int, Message], None] = lambda node, reply: None
        """Sees every reply before the server does."""
        self.reasons: list[str] = []
        self.found = 0
        """Values that a lie has read on the way."""
        self._level = _LOG.level

    def __enter__(self) -> FlowerWorld:
        _LOG.setLevel(logging.CRITICAL)  # Flower and the mod log what goes wrong here, which is the point.
        return self

    def __exit__(self, *_: object) -> None:
        _LOG.setLevel(self._level)
        self._folder.cleanup()

    @property
    def victim(self) -> int:
        """The user with the last place, so that leaving it out shortens lists at their end."""
        return self.nodes - 1

    def start(self, *, roster: bool = True, before: Callable[[int, Message], None] | None = None) -> Result:
        """Play one round with the real strategy, which a lie may step into."""
        self.grid.before = None if before is None else lambda node, message: before(node - _FIRST, message)
        self.strategy = SecAgg(
            FedAvg(fraction_evaluate=0.0),
            alpha=1.0,
            modulus_bits=32,
            clip=_CLIP,
            max_weight=0,
            confirm=False,
            roster=self.roster if roster else None,
            timeout=0.3,
            poll_seconds=0.01,
            downlink="model",
        )
        start = ArrayRecord({"w": Array(np.zeros(DIM, np.float32))})
        return self.strategy.start(self.grid, start, 1, 0.3, train_config=ConfigRecord({RATE: 1.0}))

    def ask(self, user: int, message: Message) -> Message:
        """Give a node a message of a server's own making."""
        reply = self.grid.app(travel(message), self.grid.contexts[_FIRST + user])
        self._note_reason(reply)
        return reply

    @property
    def refused_by(self) -> str | None:
        """The type of the first refusal."""
        return self.reasons[0] if self.reasons else None

    def right(self, user: int, values: NDArray[Any]) -> int:
        """Count the values of a user's update that somebody has got right."""
        return int(np.count_nonzero(np.abs(values - self.updates[user]) < TOLERANCE * _CLIP))

    # UNMASK

    @property
    def shown(self) -> PodRound:
        """The round under way: one pod, one committee."""
        assert self.strategy._run is not None  # noqa: S101
        return self.strategy._run.server.pod_rounds[0]

    def without_victim(self, message: Message) -> Message:
        """Return an UNMASK message that declares the victim dropped."""
        control: Any = message.content["secagg"]
        request = decode_server_message(control["payload"])
        assert isinstance(request, UnmaskRequest)  # noqa: S101
        others = encode_users(np.arange(self.nodes - 1), self.nodes)
        changed = msgspec.structs.replace(request, survivors=others, tags=request.tags[:-8])
        copied = travel(message)
        copied.content["secagg"] = ConfigRecord({**control, "payload": encode(changed)})
        return copied

    def read_victim(self, first: dict[int, Unmask], second: dict[int, Unmask]) -> int:
        """Remove the victim's masks with what holders gave for both sets of survivors; count what comes out right."""
        everyone = list(range(self.nodes))
        self.params = self.strategy._run.params  # type: ignore[union-attr]
        seeds = self.secrets(self.shown, first, everyone)
        masks = self.secrets(self.shown, second, everyone[:-1])
        masks = {self.victim: masks[self.victim]} if self.victim in masks else {}
        found = self.sum_of(self.shown, [self.victim], seeds, masks)
        return 0 if found is None else self.right(self.victim, found / self.params.quantizer.limit * _CLIP)

    # Nodes

    def _app(self) -> ClientApp:
        app = ClientApp()

        def train(message: Message, context: Context) -> Message:
            rate = np.float32(float(str(message.content.config_records["config"][RATE])))
            moved = message.content.array_records["arrays"]["w"].numpy() + rate * self.updates[_user(context)]
            metrics = MetricRecord({"num-examples": 1})
            content = RecordDict({"arrays": ArrayRecord({"w": Array(moved)}), "metrics": metrics})
            return Message(content, reply_to=message)

        def evaluate(message: Message, context: Context) -> Message:
            loss = float(np.abs(self.updates[_user(context)]).mean())
            return Message(RecordDict({"metrics": MetricRecord({"loss": loss})}), reply_to=message)

        app.train(mods=[secagg_mod])(train)
        app.evaluate(mods=[secagg_mod])(evaluate)
        return app

    def _node_config(self, user: int) -> dict[str, Any]:
        folder = Path(self._folder.name)
        config: dict[str, Any] = {LEDGER: str(folder / "ledger"), "secagg-evaluation": False}
        if self.roster is not None:
            config |= {ROSTER: str(self.roster), RUN_KEY: str(folder / f"{user}.run")}
        return config

    def _enrol(self) -> Path:
        folder, entries = Path(self._folder.name), []
        for user in range(self.nodes):
            secret = os.urandom(32)
            (folder / f"{user}.run").write_bytes(secret)
            entries.append(enrol(IdentityKey(os.urandom(32)), "attack", RunSecret(secret)))
        path = folder / "roster.json"
        Roster("attack", tuple(entries)).save(path)
        return path

    def _note(self, node: int, reply: Message) -> list[Message]:
        self._note_reason(reply)
        if stage_of(reply) == "UPLOAD" and "payload" in reply.content["secagg"]:
            upload = decode_client_message(read_packet(reply.content).payload)
            assert isinstance(upload, Upload)  # noqa: S101
            self.uploads[upload.sender] = upload
        self.spy(node - _FIRST, reply)
        return [reply]

    def _note_reason(self, reply: Message) -> None:
        text = (
            str(reply.error.reason)
            if reply.has_error()
            else str(dict(reply.content.get("secagg", {})).get("refused", ""))
        )
        if text:
            self.reasons.append(text.removeprefix("sparsesecagg: ").partition(":")[0])


def answer_of(reply: Message) -> Unmask | None:
    """Return the shares in a reply; None if it is a refusal."""
    if reply.has_error() or "payload" not in reply.content["secagg"]:
        return None
    message = decode_client_message(read_packet(reply.content).payload)
    return message if isinstance(message, Unmask) else None


def _user(context: Context) -> int:
    return int(context.node_config["partition-id"])
