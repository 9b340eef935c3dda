"""The ClientApp: Flower's quickstart, and one line for secure aggregation."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from mnist_app.task import Net, load_data
from mnist_app.task import train as train_fn
from sparsesecagg.flower import secagg_mod

app = ClientApp()


@app.train(mods=[secagg_mod])
def train(msg: Message, context: Context) -> Message:
    """Train the model on this node's images."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    config = context.run_config
    loader = load_data(
        int(context.node_config["partition-id"]),
        int(config["samples-per-node"]),
        int(config["batch-size"]),
        str(config["data-dir"]),
    )
    loss = train_fn(net, loader, int(config["local-epochs"]), float(config["learning-rate"]))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)
