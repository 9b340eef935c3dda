"""The ServerApp: FedAvg in secure aggregation, with noise that protects each record."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from silos_app.task import accuracy, load_test_data, new_model
from sparsesecagg.flower import DifferentialPrivacy, RoundOptions, SecAgg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds, say how good the model is and what it has cost."""
    config = context.run_config
    rounds = int(config["num-server-rounds"])
    dp = DifferentialPrivacy(
        epsilon=float(config["epsilon"]),
        delta=float(config["delta"]),
        rounds=rounds,
        # Of what one record may change in the sum: its gradient is clipped to `clip`.
        clip=float(config["clip"]) * float(config["learning-rate"]) / int(config["records-per-node"]),
        unit="example",
    )
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=5, min_available_nodes=5)
    strategy = SecAgg(strategy, RoundOptions(alpha=1.0), dp=dp, run_dir=str(config["run-dir"]) or None)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(new_model().state_dict()),
        num_rounds=rounds,
        timeout=float(config["upload-seconds"]),
        evaluate_fn=global_evaluate,
    )
    last, spent = max(result.evaluate_metrics_serverapp), strategy.privacy_spent()
    print(f"Accuracy after round {last}: {result.evaluate_metrics_serverapp[last]['accuracy']:.3f}")
    print(f"Spent for each record: epsilon {spent.epsilon:.3g} at delta {spent.delta:g} ({dp.meaning})")


def global_evaluate(_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test the model on records that no silo has."""
    model = new_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": accuracy(model, load_test_data())})
