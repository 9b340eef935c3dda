"""A server that writes down the model after every round, and what the rounds came to."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from mean_app import DIM
from sparsesecagg.flower import DifferentialPrivacy, SecAgg
from sparsesecagg.protocol import RoundOptions

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and write the file that the test reads."""
    config = context.run_config
    nodes = int(config["nodes"])
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=min(3, nodes), min_available_nodes=min(3, nodes))
    roster = str(config["roster"]) or None
    epsilon = float(config["dp-epsilon"])
    options = RoundOptions(
        alpha=float(config["alpha"]),
        modulus_bits=None if epsilon else 32,  # The tests compare means to six places.
        max_weight=0 if epsilon else 32,
        threshold=nodes // 2 + 1 if not roster else None,
    )
    dp = DifferentialPrivacy(epsilon, rounds=int(config["rounds"])) if epsilon else None
    run_dir = str(config["run-dir"]) or None
    strategy = SecAgg(inner, options, dp=dp, timeout=90, roster=roster, run_dir=run_dir)
    strategy.downlink_bits = 32
    models: dict[int, list[float]] = {}

    def keep(server_round: int, arrays: ArrayRecord) -> None:
        values = arrays["w"].numpy()
        models[server_round] = [float(values.min()), float(values.max()), float(values.mean())]

    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({"w": Array(np.zeros(DIM, np.float32))}),
        num_rounds=int(config["rounds"]),
        timeout=float(config["upload-seconds"]),
        evaluate_fn=keep,
    )
    rounds = [record.line() for record in strategy.history]
    content = {"models": models, "rounds": rounds}
    Path(str(config["out"])).write_text(json.dumps(content), encoding="utf-8")
