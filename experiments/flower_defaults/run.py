"""Measure `SecAgg(FedAvg())` with its defaults beside plain FedAvg; write results/flower_defaults.json.

    .venv/bin/python -m experiments.flower_defaults.run [--data FOLDER] [--part bytes|ranges]

Ten nodes in one process, real keys, masks and messages; bytes are those of all Flower objects of a node, up and down,
the first round included. *bytes*: an MLP of 50,890 parameters on MNIST, 40 rounds, three seeds. *ranges*: networks that
a fixed clip ruins (BatchNorm on CIFAR-10 and on raw tabular data), five rounds, uniform and weighted, with a control
that has `clip=1.0`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from flwr.serverapp.strategy import Strategy
from torch import nn

from experiments.common.results import commit
from experiments.flower_defaults.apps import Run, Task, deal, play
from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.files import write_atomically
from sparsesecagg.flower import RoundOptions, SecAgg
from sparsesecagg.lab.learning.data import load_dataset
from sparsesecagg.protocol.parameters import VERSION

RESULTS = Path(__file__).parents[2] / "results" / "flower_defaults.json"
NODES, SEEDS, ROUNDS, FEW = 10, (0, 1, 2), 40, 5
SAMPLES = 12_000
"""Of MNIST, over all nodes."""


def mlp() -> nn.Module:
    """Return a network of 50,890 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def batch_norm_cnn() -> nn.Module:
    """Return a small convolutional network with two BatchNorm layers."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def batch_norm_table() -> nn.Module:
    """Return a network that normalises raw features itself."""
    return nn.Sequential(nn.BatchNorm1d(30), nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 2))


def mnist(seed: int, data: Path | None) -> Task:
    """Return the task of *bytes*."""
    found = load_dataset("mnist", data)
    nodes = deal(found.train_x[:SAMPLES].reshape(-1, 784), found.train_y[:SAMPLES], NODES, seed)
    return Task(mlp, nodes, _tensors(found.test_x.reshape(-1, 784), found.test_y))


def cifar(seed: int, data: Path | None, samples: int = 4000) -> Task:
    """Return a task whose statistics move by more than 1 where weights move by thousandths."""
    found = load_dataset("cifar10", data)
    # As an app has them that does not normalise: from 0 to 255.
    train, test = (_bytes_of(each) for each in (found.train_x[:samples], found.test_x[:1000]))
    nodes = deal(train, found.train_y[:samples], NODES, seed)
    return Task(batch_norm_cnn, nodes, _tensors(test, found.test_y[:1000]), momentum=0.9, learning_rate=0.02)


def table(seed: int, data: Path | None = None) -> Task:
    """Return raw features, whose variances span nine decimal places."""
    from sklearn.datasets import load_breast_cancer

    del data
    found = load_breast_cancer()
    order = np.random.default_rng(seed).permutation(len(found.target))
    x, y = found.data[order].astype(np.float32), found.target[order].astype(np.int64)
    return Task(batch_norm_table, deal(x[:400], y[:400], NODES, seed), _tensors(x[400:], y[400:]), batch=8, epochs=2)


def _bytes_of(images: np.ndarray) -> np.ndarray:
    low, high = images.min(), images.max()
    raw: np.ndarray = (images.reshape(-1, 3, 32, 32) - low) * np.float32(255 / (high - low))
    return raw


def _tensors(x: np.ndarray, y: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(np.ascontiguousarray(x, np.float32)), torch.from_numpy(y)


def secured(**options: Any) -> Callable[[Strategy], Strategy]:
    """Return what wraps a strategy, with some options in place of the defaults."""
    return lambda strategy: SecAgg(strategy, RoundOptions(alpha=DEFAULT_ALPHA, **options))


def measure_bytes(data: Path | None) -> dict[str, Any]:
    """Return accuracy after the last round and bytes of all rounds, plain and secured."""
    runs: dict[str, list[Run]] = {"plain": [], "secured": []}
    for seed in SEEDS:
        task = mnist(seed, data)
        for name, wrap in (("plain", None), ("secured", SecAgg)):
            runs[name].append(play(task, ROUNDS, seed, wrap))
            print(name, seed, runs[name][-1].accuracy[-1], flush=True)
    return {
        name: {
            "accuracy": [fmean(run.accuracy[-3:]) for run in each],
            "bytes_per_round": [(sum(run.up) + sum(run.down)) / ROUNDS for run in each],
            "bytes_steady": [run.up[-1] + run.down[-1] for run in each],
            "bytes_first": [run.up[0] + run.down[0] for run in each],
            "parameters": each[0].parameters,
        }
        for name, each in runs.items()
    }


def measure_ranges(data: Path | None) -> dict[str, Any]:
    """Return the accuracy after five rounds of each task: plain, with the defaults, weighted, and the control."""
    ways = {"plain": None, "uniform": SecAgg, "weighted": secured(max_weight=400), "clip=1.0": secured(clip=1.0)}
    found: dict[str, Any] = {}
    for name, make in (("CIFAR-10, BatchNorm", cifar), ("raw tabular data, BatchNorm", table)):
        runs = {way: [play(make(seed, data), FEW, seed, wrap) for seed in SEEDS] for way, wrap in ways.items()}
        found[name] = {way: [run.accuracy[-1] for run in each] for way, each in runs.items()}
        print(name, found[name], flush=True)
    return found


def published(result: dict[str, Any]) -> str:
    """Return the sentence of docs/flower.md."""
    plain, ours = result["bytes"]["plain"], result["bytes"]["secured"]
    less, steady = (fmean(plain[name]) / fmean(ours[name]) for name in ("bytes_per_round", "bytes_steady"))
    accuracy = [f"{100 * fmean(each['accuracy']):.1f} %" for each in (ours, plain)]
    return (
        f"{less:.0f} times fewer bytes than plain FedAvg over all rounds, {steady:.0f} times in steady state; accuracy "
        f"{' instead of '.join(accuracy)}."
    )


def ranges_table(result: dict[str, Any]) -> list[str]:
    """Return the table of docs/flower-settings.md."""
    ways = {"plain": "plain FedAvg", "uniform": "defaults", "weighted": "`max_weight`", "clip=1.0": "`clip=1.0`"}
    lines = [f"| | {' | '.join(ways.values())} |", f"| --- |{' ---: |' * len(ways)}"]
    for name, found in result["ranges"].items():
        if name != "commit":
            lines.append(f"| {name} | {' | '.join(f'{100 * fmean(found[way]):.0f} %' for way in ways)} |")
    return lines


def main() -> None:
    """Measure, and write what was found beside what was there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--part", choices=["bytes", "ranges"], action="append")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    result = {**before, "protocol": VERSION, "nodes": NODES, "seeds": list(SEEDS), "alpha": DEFAULT_ALPHA}
    for name, measure in (("bytes", measure_bytes), ("ranges", measure_ranges)):
        if name in (asked.part or ["bytes", "ranges"]):
            result[name] = {**measure(asked.data), "commit": commit()}
            write_atomically(RESULTS, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
