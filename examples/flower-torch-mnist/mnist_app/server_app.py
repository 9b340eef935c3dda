"""The ServerApp: Flower's quickstart, and one line for secure aggregation."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from mnist_app.task import Net, load_test_data
from mnist_app.task import test as test_fn
from sparsesecagg.flower import SecAgg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and keep the model."""
    config = context.run_config

    def global_evaluate(_round: int, arrays: ArrayRecord) -> MetricRecord:
        net = Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        loss, accuracy = test_fn(net, load_test_data(str(config["data-dir"])))
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    # Replies to evaluation on the nodes are not masked, so the server tests the model itself.
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    strategy = SecAgg(
        strategy,
        metrics={"train_loss": 10.0},
        run_dir=str(config["run-dir"]) or None,
    )
    torch.manual_seed(0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=global_evaluate,
    )
    last = max(result.evaluate_metrics_serverapp)
    print(f"Accuracy after round {last}: {result.evaluate_metrics_serverapp[last]['accuracy']:.3f}")
