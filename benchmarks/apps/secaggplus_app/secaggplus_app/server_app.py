"""A server that runs Flower's `SecAggPlusWorkflow` and writes down how long each round took."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and write the file that the benchmark reads."""
    config = context.run_config
    nodes, rounds = int(config["nodes"]), int(config["rounds"])
    moments: list[float] = []
    while len(list(grid.get_node_ids())) < nodes:
        time.sleep(0.5)

    def between_rounds(server_round: int, *_: Any) -> None:
        moments.append(time.monotonic())
        if server_round:
            print(f"SecAgg+ round {server_round}: {moments[-1] - moments[-2]:.2f} s", flush=True)

    strategy = FedAvg(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=nodes,
        min_available_clients=nodes,
        initial_parameters=ndarrays_to_parameters([np.zeros(int(config["dim"]), np.float32)]),
        on_fit_config_fn=lambda server_round: {"server-round": server_round},
        evaluate_fn=between_rounds,
    )
    legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=rounds), strategy=strategy)
    workflow = SecAggPlusWorkflow(
        num_shares=nodes,
        reconstruction_threshold=nodes // 2 + 1,
        max_weight=10 + nodes,
        clipping_range=1.0,
        timeout=float(config["upload-seconds"]),
    )
    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
    seconds = [after - before for before, after in pairwise(moments)]
    Path(str(config["out"])).write_text(json.dumps({"seconds": {"secagg_plus": seconds}}), encoding="utf-8")
