"""The ClientApp: Flower's quickstart, and a mod for secure aggregation."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import load_data
from digits_app.task import test as test_fn
from digits_app.task import train as train_fn
from sparsesecagg.flower import secagg_mod

app = ClientApp()


@app.train(mods=[secagg_mod])
def train(msg: Message, context: Context) -> Message:
    """Train the model on this node's images."""
    weights = [array.numpy() for array in msg.content["arrays"].values()]
    data = load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    config = context.run_config
    loss = train_fn(
        weights,
        data,
        epochs=int(config["local-epochs"]),
        learning_rate=float(config["learning-rate"]),
        batch_size=int(config["batch-size"]),
    )
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data[1])})
    return Message(RecordDict({"arrays": ArrayRecord(weights), "metrics": metrics}), reply_to=msg)


@app.evaluate(mods=[secagg_mod])
def evaluate(msg: Message, context: Context) -> Message:
    """Test the model on this node's images."""
    weights = [array.numpy() for array in msg.content["arrays"].values()]
    data = load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    loss, accuracy = test_fn(weights, data)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(data[1])})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
