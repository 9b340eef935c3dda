"""Nodes that move the model a little, behind Flower's `secaggplus_mod`."""

from typing import Any

import numpy as np
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp


class Mover(NumPyClient):
    """Moves every parameter by a step that depends on the node and the round."""

    def __init__(self, partition: int) -> None:
        self.partition = partition

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        """Return the moved model and the number of examples."""
        step = np.float32(0.001 * (self.partition + 1) * int(config["server-round"]))
        return [values + step for values in parameters], 10 + self.partition, {}


def client_fn(context: Context) -> Any:
    """Return the node's client."""
    return Mover(int(context.node_config["partition-id"])).to_client()


app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])
