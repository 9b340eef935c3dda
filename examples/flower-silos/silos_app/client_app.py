"""The ClientApp: what each single record would change. The mod clips, adds up and adds noise."""

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from silos_app.task import load_data, new_model
from sparsesecagg.flower import per_example_steps, secagg_mod

app = ClientApp()


@app.train(mods=[secagg_mod])
def train(msg: Message, context: Context) -> Message:
    """Reply with one row for each record of this silo: one step of gradient descent, and no more than one."""
    model, config = new_model(), context.run_config
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    data = load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    # A public number, not this silo's own: rows must not depend on how many others there are.
    rate = float(config["learning-rate"]) / int(config["records-per-node"])
    rows = per_example_steps(model, torch.nn.functional.binary_cross_entropy_with_logits, *data, rate)
    return Message(RecordDict({"arrays": rows}), reply_to=msg)
