"""Nodes that write down what they contribute before it is on record, so that no kill comes between.

Every message has a process of its own, and an update may leave in a later one than the one that trained it.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from digits_app.task import load_data
from digits_app.task import train as train_fn
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from sparsesecagg.flower import secagg_mod
from sparsesecagg.flower.packing import Votes
from sparsesecagg.protocol import Client

app = ClientApp()
BOOK = Path(os.environ["CHAOS_BOOK"])
_upload = Client.upload


def write(name: str, **content: Any) -> None:
    """Write a file that is there completely or not at all."""
    fresh = BOOK / f"{name}-{os.getpid()}.new"
    with fresh.open("wb") as file:
        np.savez(file, **content)
    fresh.replace(BOOK / f"{name}.npz")


@app.train(mods=[secagg_mod])
def train(msg: Message, context: Context) -> Message:
    """Train, and keep the change for whoever writes it down."""
    before = [array.numpy() for array in msg.content["arrays"].values()]
    weights = [array.copy() for array in before]
    partition = int(context.node_config["partition-id"])
    data = load_data(partition, int(context.run_config["partitions"]))
    loss = train_fn(weights, data, epochs=2, learning_rate=0.2, batch_size=16)
    update = np.concatenate([(new - old).ravel() for new, old in zip(weights, before, strict=True)])
    write(f"trained-{partition}", update=update)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data[1])})
    return Message(RecordDict({"arrays": ArrayRecord(weights), "metrics": metrics}), reply_to=msg)


def upload(self: Client, data: bytes, update: Any, weight: int = 1, **options: Any) -> bytes:
    """Upload, and write down the integers that go into the sum as they are masked."""
    integers = np.zeros(self.params.dim, np.int64)

    def trace(where: Any, values: Any) -> None:
        integers[where] += values
        trained = np.load(BOOK / f"trained-{self.user}.npz")["update"]
        name = f"{self.params.digest.hex()[:16]}-{self.round_number}-{self.user}"
        write(name, integers=integers, update=trained, votes=np.array(isinstance(update, Votes)))

    return _upload(self, data, update, weight, **options, trace=trace)


Client.upload = upload  # type: ignore[method-assign]
