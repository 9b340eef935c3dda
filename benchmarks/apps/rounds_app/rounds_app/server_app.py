"""A server that runs both strategies in turns, a round each, and writes down how long each round took.

Both are started as every strategy is. What is passed from one to the other is the turn: Flower calls the evaluation
function between two rounds, and there a strategy waits until the other one has had its round.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from rounds_app import PLAIN
from sparsesecagg.flower import SecAgg
from sparsesecagg.protocol import RoundOptions

app = ServerApp()
SECURE_NAME, PLAIN_NAME = "secure", "plain"


class PlainFedAvg(FedAvg):
    """FedAvg that speaks to the function without the mod."""

    def _construct_messages(self, record: RecordDict, node_ids: list[int], message_type: str) -> Iterable[Message]:
        return super()._construct_messages(record, node_ids, PLAIN if message_type == "train" else message_type)


class Turns:
    """Who may play, and how long each round took."""

    def __init__(self, names: list[str]) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in names}
        self._waiting = names
        self._changed = threading.Condition()

    def between_rounds(self, name: str) -> Callable[[int, ArrayRecord], None]:
        """Return the evaluation function of a strategy, which hands over the turn and waits for the next one."""
        begun = 0.0

        def hand_over(server_round: int, _arrays: ArrayRecord) -> None:
            nonlocal begun
            if server_round:
                self.seconds[name].append(time.monotonic() - begun)
                print(f"{name} round {server_round}: {self.seconds[name][-1]:.2f} s", flush=True)
                self.leave(name, again=True)
            with self._changed:
                self._changed.wait_for(lambda: self._waiting[0] == name)
            begun = time.monotonic()

        return hand_over

    def leave(self, name: str, again: bool = False) -> None:
        """Let the other one play; with `again` come back after it."""
        with self._changed:
            self._waiting = [each for each in self._waiting if each != name] + [name] * again
            self._changed.notify_all()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and write the file that the benchmark reads."""
    config = context.run_config
    nodes, rounds = int(config["nodes"]), int(config["rounds"])
    common: dict[str, Any] = {"fraction_evaluate": 0.0, "min_train_nodes": 3, "min_available_nodes": 3}
    secure = SecAgg(
        FedAvg(**common),
        RoundOptions(alpha=float(config["alpha"]), modulus_bits=int(config["modulus-bits"]), max_weight=10 + nodes),
        roster=str(config["roster"]) or None,
        timeout=float(config["upload-seconds"]),
    )
    strategies = {PLAIN_NAME: PlainFedAvg(**common), SECURE_NAME: secure}
    turns = Turns(list(strategies))
    while len(list(grid.get_node_ids())) < nodes:
        time.sleep(0.5)

    def play(name: str) -> None:
        try:
            strategies[name].start(
                grid=grid,
                initial_arrays=ArrayRecord({"w": Array(np.zeros(int(config["dim"]), np.float32))}),
                num_rounds=rounds,
                timeout=float(config["upload-seconds"]),
                evaluate_fn=turns.between_rounds(name),
            )
        finally:
            turns.leave(name)

    threads = [threading.Thread(target=play, args=(name,)) for name in strategies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = {"seconds": turns.seconds, "rounds": [record.line() for record in secure.history]}
    Path(str(config["out"])).write_text(json.dumps(content), encoding="utf-8")
