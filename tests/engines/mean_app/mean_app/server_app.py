"""A server that writes down the model after every round, and what the rounds came to."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from mean_app import DIM
from sparsesecagg.engines.flower.courier import PatientGrid
from sparsesecagg.flower import SecAgg
from sparsesecagg.protocol.messages import UnmaskRequest, decode_server_message, decode_users, encode, encode_users

app = ServerApp()


class TwiceGrid(PatientGrid):
    """Asks one node for its shares twice at the same time, with other survivors; keeps what it says to that."""

    def __init__(self, inner: Grid, nodes: int) -> None:
        super().__init__(inner, None, None)  # type: ignore[arg-type]
        self.nodes = nodes
        self.second: str | None = None
        self.replies: list[str] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        asked = [message for message in sent if dict(message.content["secagg"]).get("stage") == "UNMASK"]
        extra = [self._without_one(asked[0])] if asked and self.second is None else []
        ids = list(self.inner.push_messages([*sent, *extra]))
        if extra:
            self.second = ids.pop()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        waiting = [self.second] if self.second and not self.replies else []
        replies = list(self.inner.pull_messages([*message_ids, *waiting]))
        ours = [reply for reply in replies if reply.metadata.reply_to_message_id == self.second]
        self.replies += [str(reply.error.reason) if reply.has_error() else "answered" for reply in ours]
        return [reply for reply in replies if reply not in ours]

    def _without_one(self, message: Message) -> Message:
        """Return the same request with one survivor less."""
        control: Any = message.content["secagg"]
        request = decode_server_message(control["payload"])
        assert isinstance(request, UnmaskRequest)
        survivors = decode_users(request.survivors, self.nodes)
        user = int(control["user"])
        partners = [int(place) for place in survivors if place != user]
        fewer = encode_users(np.array([place for place in survivors.tolist() if place != partners[-1]]), self.nodes)
        changed = msgspec.structs.replace(request, survivors=fewer, tags=request.tags[:-8])
        content = RecordDict({"secagg": ConfigRecord({**control, "payload": encode(changed)})})
        metadata = message.metadata
        return Message(content, metadata.dst_node_id, metadata.message_type, ttl=metadata.ttl, group_id="twice")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and write the file that the test reads."""
    config = context.run_config
    nodes = int(config["nodes"])
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=min(3, nodes), min_available_nodes=min(3, nodes))
    roster = str(config["roster"]) or None
    strategy = SecAgg(
        inner,
        alpha=float(config["alpha"]),
        max_weight=32,
        timeout=float(config["upload-seconds"]),
        roster=roster,
        downlink=str(config["downlink"]),
    )
    models: dict[int, list[float]] = {}

    def keep(server_round: int, arrays: ArrayRecord) -> None:
        values = arrays["w"].numpy()
        models[server_round] = [float(values.min()), float(values.max()), float(values.mean())]

    twice = TwiceGrid(grid, nodes) if config["twice"] else None
    strategy.start(
        grid=twice or grid,
        initial_arrays=ArrayRecord({"w": Array(np.zeros(DIM, np.float32))}),
        num_rounds=int(config["rounds"]),
        timeout=float(config["upload-seconds"]),
        evaluate_fn=keep,
    )
    rounds = [record.line() for record in strategy.history]
    content = {"models": models, "rounds": rounds, "second": twice.replies if twice else []}
    Path(str(config["out"])).write_text(json.dumps(content), encoding="utf-8")
