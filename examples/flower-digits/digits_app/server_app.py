"""The ServerApp: Flower's quickstart, and one line for secure aggregation."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import load_test_data, new_model
from digits_app.task import test as test_fn
from sparsesecagg.flower import SecAgg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and say how good the model is."""
    # Replies to evaluation on the nodes are not masked, so the server tests the model itself.
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    strategy = SecAgg(
        strategy,
        roster=str(context.run_config["secagg-roster"]) or None,
        run_dir=str(context.run_config["run-dir"]) or None,
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(new_model()),
        num_rounds=int(context.run_config["num-server-rounds"]),
        timeout=float(context.run_config["upload-seconds"]),
        evaluate_fn=global_evaluate,
    )
    last = max(result.evaluate_metrics_serverapp)
    print(f"Accuracy after round {last}: {result.evaluate_metrics_serverapp[last]['accuracy']:.3f}")


def global_evaluate(_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test the model on images that no node has."""
    loss, accuracy = test_fn([array.numpy() for array in arrays.values()], load_test_data())
    return MetricRecord({"accuracy": accuracy, "loss": loss})
