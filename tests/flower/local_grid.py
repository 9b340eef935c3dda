"""Nodes of a test: the Grid in one process, models as arrays, and ClientApps whose training is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from sparsesecagg.flower import SecAgg, secagg_mod
from sparsesecagg.lab.attacks.local_grid import RUN, SERVER, LocalGrid, Silent, stage_of, travel
from sparsesecagg.protocol import RoundOptions

__all__ = [
    "RUN",
    "SERVER",
    "LocalGrid",
    "PassThrough",
    "Silent",
    "content_of",
    "model",
    "round_of",
    "secagg",
    "stage_of",
    "training_app",
    "travel",
    "values",
]


def round_of(message: Message) -> int:
    """Return the round that a message belongs to."""
    return int(str(message.content["secagg"]["round"]))


def content_of(message: Message) -> Any:
    """Return a message's records. Each test knows which they are, and what is in them."""
    return message.content


def model(**arrays: Any) -> ArrayRecord:
    """Return a model of the given arrays."""
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in arrays.items()})


def values(record: ArrayRecord) -> dict[str, np.ndarray]:
    """Return a model's arrays."""
    return {name: array.numpy() for name, array in record.items()}


_OPTIONS = {field.name for field in fields(RoundOptions)}


def secagg(inner: Any = None, **settings: Any) -> SecAgg:
    """Return a strategy that sends everything and waits for nobody, but for the settings that a test names."""
    usual = {"alpha": 1.0, "modulus_bits": 32, "clip": 64.0, "max_weight": 10, "timeout": 0.3, "downlink_bits": 32}
    settings = {**usual, **settings}
    options = RoundOptions(**{name: value for name, value in settings.items() if name in _OPTIONS})
    others = {name: value for name, value in settings.items() if name not in {*_OPTIONS, "downlink_bits"}}
    strategy = SecAgg(inner or FedAvg(fraction_evaluate=0.0), options, **others)
    strategy.downlink_bits = settings["downlink_bits"]
    return strategy


Shift = Callable[[int, dict[str, np.ndarray], int], dict[str, np.ndarray]]
"""From partition, received arrays and round to trained arrays."""


def training_app(
    shift: Shift,
    weight: Callable[[int], int] = lambda partition: 10,
    metrics: Callable[[int], dict[str, float]] = lambda partition: {},
    mods: list[Any] | None = None,
) -> ClientApp:
    """Return a ClientApp whose training is a function of partition and round."""
    app = ClientApp()

    @app.train(mods=[secagg_mod] if mods is None else mods)
    def train(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        content = content_of(message)
        trained = shift(partition, values(content["arrays"]), content["config"]["server-round"])
        reply = RecordDict(
            {
                "arrays": model(**trained),
                "metrics": MetricRecord({"num-examples": weight(partition), **metrics(partition)}),
            }
        )
        return Message(reply, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        metrics = MetricRecord({"num-examples": weight(partition), "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


class PassThrough(Strategy):
    """A strategy around another one that changes nothing."""

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner

    def configure_train(self, *arguments: Any) -> Iterable[Message]:
        return self.inner.configure_train(*arguments)

    def aggregate_train(self, *arguments: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        return self.inner.aggregate_train(*arguments)

    def configure_evaluate(self, *arguments: Any) -> Iterable[Message]:
        return self.inner.configure_evaluate(*arguments)

    def aggregate_evaluate(self, *arguments: Any) -> Any:
        return self.inner.aggregate_evaluate(*arguments)

    def summary(self) -> None:
        self.inner.summary()
