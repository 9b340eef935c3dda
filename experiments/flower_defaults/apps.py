"""Flower apps in one process, plain and secured: small networks of PyTorch on data that is dealt out to ten nodes."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from torch import nn

from sparsesecagg.flower import SecAgg, secagg_mod
from sparsesecagg.flower.messages import wire_bytes
from sparsesecagg.flower.node import LEDGER
from sparsesecagg.lab.attacks.local_grid import LocalGrid

Samples = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """A network, the samples of each node, and those that it is tested on."""

    network: Callable[[], nn.Module]
    nodes: Sequence[Samples]
    test: Samples
    learning_rate: float = 0.05
    momentum: float = 0.0
    batch: int = 32
    epochs: int = 1


@dataclass(frozen=True)
class Run:
    """What came out."""

    accuracy: list[float]
    """After each round."""
    up: list[float]
    """Bytes of all Flower objects that a node sent, by round, on average."""
    down: list[float]
    """Those that it received."""
    parameters: int


def deal(x: np.ndarray, y: np.ndarray, nodes: int, seed: int) -> list[Samples]:
    """Return equal parts of shuffled samples."""
    order = np.random.default_rng(seed).permutation(len(x))
    parts = np.array_split(order, nodes)
    return [(torch.from_numpy(x[part].astype(np.float32)), torch.from_numpy(y[part])) for part in parts]


def train(network: nn.Module, samples: Samples, task: Task, seed: int) -> None:
    """Train a network on samples, as any app does."""
    x, y = samples
    random = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=task.learning_rate, momentum=task.momentum)
    network.train()
    for _ in range(task.epochs):
        for batch in torch.split(torch.randperm(len(x), generator=random), task.batch):
            if len(batch) < 2:
                continue
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def accuracy(network: nn.Module, samples: Samples) -> float:
    """Return the part of the samples that a network gets right."""
    network.eval()
    with torch.no_grad():
        right = network(samples[0]).argmax(1) == samples[1]
    return float(right.float().mean())


def play(
    task: Task,
    rounds: int,
    seed: int,
    wrap: Callable[[Strategy], Strategy] | None = SecAgg,
    inner: Callable[[], Strategy] = lambda: FedAvg(fraction_evaluate=0.0),
) -> Run:
    """Run an app; without `wrap` it is not secured."""
    torch.manual_seed(seed)
    network = task.network()
    start = ArrayRecord(copy.deepcopy(network.state_dict()))
    app = ClientApp()

    @app.train(mods=[secagg_mod] if wrap else [])
    def train_one(message: Message, context: Context) -> Message:
        content: Any = message.content
        partition, number = int(context.node_config["partition-id"]), int(content["config"]["server-round"])
        own = task.network()
        own.load_state_dict(content["arrays"].to_torch_state_dict())
        train(own, task.nodes[partition], task, 1000 * number + 10 * partition + seed)
        metrics = MetricRecord({"num-examples": len(task.nodes[partition][1])})
        return Message(RecordDict({"arrays": ArrayRecord(own.state_dict()), "metrics": metrics}), reply_to=message)

    found: list[float] = []
    marks: list[tuple[int, int]] = [(0, 0)]

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        network.load_state_dict(arrays.to_torch_state_dict())
        found.append(accuracy(network, task.test))
        marks.append((len(grid.replied), len(grid.sent)))
        return MetricRecord({"accuracy": found[-1]})

    with tempfile.TemporaryDirectory() as folder:
        grid = LocalGrid(app, len(task.nodes), node_config=lambda index: {LEDGER: str(Path(folder) / str(index))})
        strategy = wrap(inner()) if wrap else inner()
        strategy.start(
            grid=grid, initial_arrays=start, num_rounds=rounds, train_config=ConfigRecord(), evaluate_fn=evaluate
        )

    def by_round(messages: list[tuple[int, Message]], which: int) -> list[float]:
        sizes = [wire_bytes(message) for _, message in messages]
        return [sum(sizes[low[which] : high[which]]) / len(task.nodes) for low, high in pairwise(marks[1:])]

    parameters = sum(values.numel() for values in network.state_dict().values())
    return Run(found[1:], by_round(grid.replied, 0), by_round(grid.sent, 1), parameters)
