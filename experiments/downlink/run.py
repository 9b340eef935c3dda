"""Measure steps on the way down, write results/downlink.json, and the tables of docs/downlink.md from it.

    .venv/bin/python -m experiments.downlink.run [--without-mnist]

Bytes and accuracies do not depend on the machine; seconds do. MNIST is looked for as `sparsesecagg train` does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.results import machine
from experiments.downlink.rules import RULES
from experiments.downlink.training import Advance, Task, Vector, accuracy, steps, whole_models
from sparsesecagg import __version__
from sparsesecagg.downlink import STEP_BITS, Replica, StepLog
from sparsesecagg.lab.learning.models import LocalTraining

ROOT = Path(__file__).parents[2]
RESULTS, DOCUMENT = ROOT / "results" / "downlink.json", ROOT / "docs" / "downlink.md"
END = "<!-- end -->\n"
DIMS = (165_000, 1_663_370)
SEEDS = (0, 1, 2)
REPEATS = 15

_DIGITS = LocalTraining(epochs=5, batch=10, lr=0.1)
_MNIST = LocalTraining(epochs=1, batch=28, lr=0.05)
TASKS = {
    "digits, IID": Task("digits", "iid", 20, 10, 200, 128, 40, _DIGITS),
    "digits, shards": Task("digits", "shards", 20, 10, 200, 128, 40, _DIGITS),
    "MNIST, IID": Task("mnist", "iid", 100, 10, 200, 100, 30, _MNIST),
    "MNIST, shards": Task("mnist", "shards", 100, 10, 200, 100, 30, _MNIST),
}
RULES_ON = "digits, shards"


def main() -> None:
    """Measure, save, publish."""
    tasks = {name: task for name, task in TASKS.items() if "--without-mnist" not in sys.argv or task.dataset != "mnist"}
    result = {
        "command": "python -m experiments.downlink.run",
        "version": __version__,
        "commit": git("rev-parse", "--short", "HEAD"),
        "machine": machine(),
        "seeds": list(SEEDS),
        "sizes": {str(dim): sizes(dim) for dim in DIMS},
        "seconds": {str(dim): {str(bits): seconds(dim, bits) for bits in STEP_BITS} for dim in DIMS},
        "accuracy": {name: accuracies(task) for name, task in tasks.items()},
        "rules": {"task": RULES_ON, "rules": rules(TASKS[RULES_ON])},
    }
    RESULTS.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    DOCUMENT.write_text(published(DOCUMENT.read_text(encoding="utf-8"), result), encoding="utf-8")


def sizes(dim: int) -> dict[str, int]:
    """Return the bytes that a node one round behind receives, by bits, when all of the model or a tenth has changed."""
    rng = np.random.default_rng(0)
    found = {"whole model": len(StepLog(np.ones(dim, np.float32)).for_node(None))}
    for bits in STEP_BITS:
        for name, part in (("all", slice(None)), ("a tenth", slice(0, dim // 10))):
            log = StepLog(np.zeros(dim, np.float32), bits)
            target = np.zeros(dim, np.float32)
            target[part] = rng.normal(0, 0.01, dim).astype(np.float32)[part]
            log.advance(target)
            found[f"{bits} bits, {name}"] = len(log.for_node(0))
    return found


def seconds(dim: int, bits: int) -> dict[str, float]:
    """Return processor seconds of the server's encoding and of the node's decoding and applying, digests included.

    The least of the repeats, which a busy machine hardly changes.
    """
    rng = np.random.default_rng(0)
    log = StepLog(rng.normal(0, 0.05, dim).astype(np.float32), bits)
    replica, server, node = Replica(log.model), list[float](), list[float]()
    for _ in range(REPEATS):
        target = log.model + rng.normal(0, 0.001, dim).astype(np.float32)
        began = time.process_time()
        log.advance(target)
        data = log.for_node(replica.sequence)
        server.append(time.process_time() - began)
        began = time.process_time()
        replica.catch_up(data)
        node.append(time.process_time() - began)
    return {"encode": round(min(server), 5), "apply": round(min(node), 5)}


def accuracies(task: Task) -> dict[str, list[float]]:
    """Return the accuracy of each seed, by bits; `whole` for whole models."""
    systems: dict[str, Callable[[Vector, int], Advance]] = {"whole": whole_models}
    systems |= {str(bits): steps(bits) for bits in reversed(STEP_BITS)}
    return {name: [round(accuracy(task, begin, seed), 3) for seed in SEEDS] for name, begin in systems.items()}


def rules(task: Task) -> dict[str, dict[str, float]]:
    """Return accuracy and kept error of each way to round."""
    found = {}
    for name, make in RULES.items():
        rule = make()
        reached = fmean(accuracy(task, rule.begin, seed) for seed in SEEDS)
        found[name] = {"accuracy": round(reached, 2), "kept": round(fmean(rule.kept), 3)}
    return found


def published(document: str, result: dict[str, Any]) -> str:
    """Return the document with its tables written anew."""
    for name, lines in (
        ("sizes", sizes_table(result)),
        ("accuracy", accuracy_table(result)),
        ("rules", rules_table(result)),
    ):
        begin = f"<!-- table: results/downlink.json {name} -->\n"
        before, rest = document.split(begin)
        document = before + begin + "\n".join(lines) + "\n" + END + rest.split(END, 1)[1]
    return document


def sizes_table(result: dict[str, Any]) -> list[str]:
    """Return bytes and milliseconds by bits, for the larger model."""
    dim = max(DIMS)
    found, took = result["sizes"][str(dim)], result["seconds"][str(dim)]
    whole = found["whole model"]
    lines = [
        "| what travels | bytes | per coordinate | against the model | a tenth changed, bytes | encode | apply |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| whole model, float32 | {whole:,} | {whole / dim:.3f} | 1× | {whole:,} | | |",
    ]
    for bits in reversed(STEP_BITS):
        size, few, times = found[f"{bits} bits, all"], found[f"{bits} bits, a tenth"], took[str(bits)]
        lines.append(
            f"| step of {bits} bits | {size:,} | {size / dim:.3f} | {whole / size:.1f}× smaller | {few:,} "
            f"| {1000 * times['encode']:.0f} ms | {1000 * times['apply']:.0f} ms |"
        )
    return lines


def accuracy_table(result: dict[str, Any]) -> list[str]:
    """Return mean accuracies by task."""
    lines = ["| task | whole models | 8 bits | 4 bits | 2 bits |", "| --- | ---: | ---: | ---: | ---: |"]
    for task, found in result["accuracy"].items():
        cells = [f"{fmean(found[name]):.2f} %" for name in ("whole", "8", "4", "2")]
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return lines


def rules_table(result: dict[str, Any]) -> list[str]:
    """Return the ways to round."""
    lines = ["| way to round | accuracy | kept error, in updates |", "| --- | ---: | ---: |"]
    for name, found in result["rules"]["rules"].items():
        lines.append(f"| {name} | {found['accuracy']:.2f} % | {found['kept']:.2f} |")
    return lines


def git(*arguments: str) -> str:
    """Return what git says."""
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    main()
