"""A server that writes down the model after every round, and what the rounds came to."""

import json
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from mean_app import DIM
from sparsesecagg.flower import SecAgg
from sparsesecagg.flower.courier import Courier, PatientGrid
from sparsesecagg.protocol import RoundOptions
from sparsesecagg.protocol.messages import UnmaskRequest, decode_server_message, decode_users, encode, encode_users

app = ServerApp()


class TwiceGrid(PatientGrid):
    """Asks one user for its shares twice at the same time, with other survivors; keeps what is said to that.

    A SuperNode works on one message after the other, so the second request goes to another one. All nodes of the test
    have one ledger, so that two processes act for the same user, as if its node were run twice.
    """

    def __init__(self, inner: Grid, nodes: int) -> None:
        super().__init__(inner, Courier())
        self.nodes = nodes
        self.request: Message | None = None
        """The second request."""
        self.first = self.second = ""
        self.replies: dict[str, list[str]] = {"first": [], "second": [], "again": []}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        asked = [message for message in sent if dict(message.content["secagg"]).get("stage") == "UNMASK"]
        if not asked or self.request is not None:
            return self.inner.push_messages(sent)
        self.request = self._without_one(asked[0], asked[1].metadata.dst_node_id)
        # Both are out at the same time. The lie comes last: a user that has answered a lie stops.
        *ids, self.second = self.inner.push_messages([*sent, self.request])
        self.first = ids[sent.index(asked[0])]
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        waiting = [self.second] if self.second and not self.replies["second"] else []
        replies = list(self.inner.pull_messages([*message_ids, *waiting]))
        for name, asked in (("first", self.first), ("second", self.second)):
            self.replies[name] += [answer(each) for each in replies if each.metadata.reply_to_message_id == asked]
        return [reply for reply in replies if reply.metadata.reply_to_message_id != self.second]

    def ask_again(self, known: set[int]) -> None:
        """Wait for the second reply and for a node that was not known, and ask that one the same."""
        if self.request is None:
            return  # No round came so far.
        while not self.replies["second"]:
            time.sleep(0.2)
            self.pull_messages([])
        logging.getLogger("flwr").info("Waiting for a node that is started again")
        while not (new := set(self.inner.get_node_ids()) - known):
            time.sleep(0.2)
        (key,) = self.inner.push_messages([self._to(self.request, new.pop())])
        while not (replies := list(self.inner.pull_messages([key]))):
            time.sleep(0.2)
        self.replies["again"] = [answer(reply) for reply in replies]

    def _without_one(self, message: Message, node: int) -> Message:
        """Return the same request with one survivor less."""
        control: Any = message.content["secagg"]
        request = decode_server_message(control["payload"])
        assert isinstance(request, UnmaskRequest)
        survivors = decode_users(request.survivors, self.nodes)
        user = int(control["user"])
        partners = [int(place) for place in survivors if place != user]
        fewer = encode_users(np.array([place for place in survivors.tolist() if place != partners[-1]]), self.nodes)
        changed = msgspec.structs.replace(request, survivors=fewer, tags=request.tags[:-8])
        message.content["secagg"] = ConfigRecord({**control, "payload": encode(changed)})
        copied = self._to(message, node)
        message.content["secagg"] = control
        return copied

    @staticmethod
    def _to(message: Message, node: int) -> Message:
        content = RecordDict({"secagg": message.content["secagg"]})
        return Message(content, node, message.metadata.message_type, ttl=message.metadata.ttl, group_id="twice")


def answer(reply: Message) -> str:
    """Return what a node said."""
    return str(reply.error.reason) if reply.has_error() else "answered"


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and write the file that the test reads."""
    config = context.run_config
    nodes = int(config["nodes"])
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=min(3, nodes), min_available_nodes=min(3, nodes))
    roster = str(config["roster"]) or None
    options = RoundOptions(
        alpha=float(config["alpha"]), max_weight=32, threshold=nodes // 2 + 1 if not roster else None
    )
    run_dir = str(config["run-dir"]) or None
    strategy = SecAgg(inner, options, timeout=90, roster=roster, downlink_bits=32, run_dir=run_dir)
    models: dict[int, list[float]] = {}

    def keep(server_round: int, arrays: ArrayRecord) -> None:
        values = arrays["w"].numpy()
        models[server_round] = [float(values.min()), float(values.max()), float(values.mean())]

    twice = TwiceGrid(grid, nodes) if config["twice"] else None
    known = set(grid.get_node_ids())
    strategy.start(
        grid=twice or grid,
        initial_arrays=ArrayRecord({"w": Array(np.zeros(DIM, np.float32))}),
        num_rounds=int(config["rounds"]),
        timeout=float(config["upload-seconds"]),
        evaluate_fn=keep,
    )
    if twice:
        twice.ask_again(known)
    rounds = [record.line() for record in strategy.history]
    content = {"models": models, "rounds": rounds, "twice": twice.replies if twice else {}}
    Path(str(config["out"])).write_text(json.dumps(content), encoding="utf-8")
