"""The ServerApp: FedAvg over adapters, one statement for secure aggregation, and what each round has cost."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from lora_app.task import adapters_of, load_data, new_model, set_adapters
from lora_app.task import test as test_fn
from sparsesecagg.flower import SecAgg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds, and print accuracy and bytes."""
    config = context.run_config
    model = new_model(int(config["hidden"]))
    test_data = load_data(part=-1, samples=512)

    def global_evaluate(_round: int, arrays: ArrayRecord) -> MetricRecord:
        set_adapters(model, arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": test_fn(model, test_data)})

    # Replies to evaluation on the nodes are not masked, so the server tests the model itself.
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    strategy = SecAgg(strategy)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(adapters_of(model)),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=global_evaluate,
    )
    everything = sum(parameter.numel() for parameter in model.parameters())
    adapters = sum(array.numel() for array in adapters_of(model).values())
    print(f"{everything:,} parameters, {adapters:,} of them in adapters")
    for record in strategy.history:
        accuracy = result.evaluate_metrics_serverapp[record.number]["accuracy"]
        sent, received = (record.by_stage(way)["total"] for way in ("wire", "received"))
        cost = f"per node {sent:,.0f} bytes sent, {received:,.0f} received"
        print(f"round {record.number}: accuracy {accuracy:.3f}; {cost}")
