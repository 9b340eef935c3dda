"""Nodes that move the model a little, once behind the mod and once without it.

How long they train is not the point: both kinds of rounds train alike, and exchanges are what is measured.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rounds_app import PLAIN
from sparsesecagg.flower import secagg_mod

app = ClientApp()


def train(message: Message, context: Context) -> Message:
    """Move every parameter by a step that depends on the node and the round."""
    partition = int(context.node_config["partition-id"])
    server_round = int(message.content["config"]["server-round"])
    moved = message.content["arrays"]["w"].numpy() + np.float32(0.001 * (partition + 1) * server_round)
    content = {"arrays": ArrayRecord({"w": Array(moved)}), "metrics": MetricRecord({"num-examples": 10 + partition})}
    return Message(RecordDict(content), reply_to=message)


app.train(mods=[secagg_mod])(train)
app.train(PLAIN.partition(".")[2])(train)
