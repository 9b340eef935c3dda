"""A server that writes down every answer that reaches it, every sum that it opens and every model."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from digits_app.task import load_test_data, new_model
from digits_app.task import test as test_fn
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from sparsesecagg.flower import RoundOptions, SecAgg
from sparsesecagg.protocol import Server
from sparsesecagg.protocol.messages import decode_client_message

app = ServerApp()
_receive, _close_stage = Server.receive, Server.close_stage


class Book:
    """Events in their order, as files with rising numbers; answers as lines."""

    folder = Path()
    control = False

    def write(self, kind: str, **content: Any) -> None:
        """Write one event down."""
        number = len(list(self.folder.glob("event-*.npz")))
        fresh = self.folder / "event.new"
        with fresh.open("wb") as file:
            np.savez(file, kind=np.array(kind), **content)
        fresh.replace(self.folder / f"event-{number:05}.npz")

    def answer(self, server: Server, data: bytes) -> None:
        """Write one answer down: who gave it to what, and a hash of it."""
        message = decode_client_message(data)
        which = [server.params.digest.hex()[:16], type(message).__name__, message.round_number, message.sender]
        with (self.folder / "answers.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps([which, sha256(data).hexdigest()]) + "\n")

    def model(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        """Write the model down, and say how good it is."""
        weights = [array.numpy() for array in arrays.values()]
        flat = np.concatenate([array.ravel() for array in weights])
        if self.control and server_round > 1:
            flat[0] += np.float32(0.01)
        loss, accuracy = test_fn(weights, load_test_data())
        self.write("model", model=flat, accuracy=np.array(accuracy), server_round=np.array(server_round))
        return MetricRecord({"accuracy": accuracy, "loss": loss})


book = Book()


def receive(self: Server, sender: int | None, data: bytes) -> int:
    """Write an answer down, and receive it."""
    book.answer(self, data)
    return _receive(self, sender, data)


def close_stage(self: Server) -> dict[int, bytes]:
    """Close a stage, and write down the sum that it opened."""
    outbound = _close_stage(self)
    if (result := self.result) is not None:
        book.write(
            "result",
            params=np.array(self.params.digest.hex()[:16]),
            round_number=np.array(result.round_number),
            survivors=np.array(result.survivors),
            total=result.total,
            clipped=np.array(result.clipped or 0),
        )
    return outbound


Server.receive, Server.close_stage = receive, close_stage  # type: ignore[method-assign]


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds that are left."""
    config = context.run_config
    book.folder, book.control = Path(str(config["folder"])), bool(config["control"])
    book.write("start")
    strategy = SecAgg(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3),
        RoundOptions(alpha=float(config["alpha"]), modulus_bits=32),  # So that means agree to six places.
        roster=str(config["roster"]),
        run_dir=book.folder / "run",
        timeout=float(config["stage-seconds"]),
    )
    strategy.downlink_bits = 32
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(new_model()),
        num_rounds=int(config["rounds"]),
        timeout=float(config["upload-seconds"]),
        evaluate_fn=book.model,
    )
    book.write("end")
