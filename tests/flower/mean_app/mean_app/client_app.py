"""Nodes that move the model by a known amount; some raise an exception where the run's configuration says so."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from mean_app import step, weight
from sparsesecagg.flower import secagg_mod

app = ClientApp()


@app.train(mods=[secagg_mod])
def train(msg: Message, context: Context) -> Message:
    """Move every parameter by `step`, unless this node is to fail in this round."""
    partition = int(context.node_config["partition-id"])
    server_round = int(msg.content["config"]["server-round"])
    if f"{partition}@{server_round}" in str(context.run_config["raising"]).split():
        raise RuntimeError("this node fails as it was told to")
    trained = msg.content["arrays"]["w"].numpy() + np.float32(step(partition, server_round))
    metrics = MetricRecord({"num-examples": weight(partition)})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(trained)}), "metrics": metrics}), reply_to=msg)
