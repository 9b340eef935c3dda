"""The ClientApp: adapters in, adapters out, and one line for secure aggregation."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from lora_app.task import adapters_of, load_data, new_model, set_adapters
from lora_app.task import train as train_fn
from sparsesecagg.flower import secagg_mod

app = ClientApp()


@app.train(mods=[secagg_mod])
def train(msg: Message, context: Context) -> Message:
    """Train the adapters on this node's sentences."""
    config = context.run_config
    model = new_model(int(config["hidden"]))
    set_adapters(model, msg.content["arrays"].to_torch_state_dict())
    data = load_data(int(context.node_config["partition-id"]), int(config["samples-per-node"]))
    loss = train_fn(model, data, int(config["local-epochs"]), float(config["learning-rate"]))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data[1])})
    return Message(RecordDict({"arrays": ArrayRecord(adapters_of(model)), "metrics": metrics}), reply_to=msg)
