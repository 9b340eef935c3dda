"""Train with ever smaller α, everything else alike; write results/alphas.json, and the README's table from it.

    .venv/bin/python -m experiments.alphas.run            # everything; what is in the results file stays
    .venv/bin/python -m experiments.alphas.run publish    # the table alone

Accuracies do not depend on the machine, up to the last bits of its linear algebra. Committees are the same throughout,
so that α alone changes: each coordinate is a mean over α of the users.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from experiments.common.results import commit
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import FederatedRun, Task

ROOT = Path(__file__).parents[2]
RESULTS, README = ROOT / "results" / "alphas.json", ROOT / "README.md"
BEGIN, END = "<!-- table: results/alphas.json -->\n", "<!-- end -->\n"

ALPHAS = (1.0, 0.5, 0.2, 0.1, 0.05)
SEEDS = (0, 1, 2)
COMMON: dict[str, Any] = {
    "clients": 100, "committee_size": 5, "pod_size": 10, "dropout": 0.1, "modulus_bits": 16, "downlink": "model",
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "digits, IID": {"dataset": "digits", "rounds": 30},
    "digits, shards": {"dataset": "digits", "rounds": 30, "partition": "shards"},
    "MNIST, shards": {
        "dataset": "mnist", "model": "mlp", "rounds": 20, "samples": 10_000, "lr": 0.05, "partition": "shards",
    },
}  # fmt: skip
LAST = 5
"""Accuracy is the mean of so many last rounds: on shards it moves by a point or two from round to round."""


def main(wanted: list[str]) -> None:
    """Measure what is not measured yet, save after every run, publish."""
    if wanted != ["publish"]:
        for name in wanted or SETTINGS:
            measure(name)
    result = json.loads(RESULTS.read_text(encoding="utf-8"))
    result["configuration"]["settings"] = {name: SETTINGS[name] for name in complete(result)}
    RESULTS.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    publish(result)


def measure(setting: str) -> None:
    """Train one setting with every seed and α."""
    for seed in SEEDS:
        task = None
        for alpha in ALPHAS:
            result = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else new_result()
            if (setting, alpha, seed) in {(run["setting"], run["alpha"], run["seed"]) for run in result["runs"]}:
                continue
            config = TrainingConfig.create(**COMMON, **SETTINGS[setting], alpha=alpha, seed=seed)
            task = task or Task.prepare(config)
            found = {"setting": setting, "alpha": alpha, "seed": seed, **train(config, task)}
            print(json.dumps(found), flush=True)
            result["runs"].append(found)
            RESULTS.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def new_result() -> dict[str, Any]:
    """Return a results file without runs."""
    return {
        "command": "python -m experiments.alphas.run",
        "commit": commit(),
        "seeds": list(SEEDS),
        "configuration": {"common": COMMON, "settings": SETTINGS, "last_rounds": LAST},
        "runs": [],
    }


def train(config: TrainingConfig, task: Task) -> dict[str, Any]:
    """Train one run to its end in one process."""
    with tempfile.TemporaryDirectory() as folder:
        run = FederatedRun.create(config, task, Path(folder) / "run")
        with task.pool(config, 1) as pool:
            lines = [metrics.to_json() for metrics in run.rounds(pool)]
    accuracies = [100 * line["accuracy"] for line in lines]
    return {
        "accuracy": fmean(accuracies[-LAST:]),
        "accuracy_at_a_quarter": fmean(accuracies[len(accuracies) // 4 - LAST // 2 :][:LAST]),
        "coordinates_updated": fmean(line["coordinates_updated"] for line in lines),
        "contributors": fmean(line["contributors"]["mean"] or 0.0 for line in lines),
        "upload_bytes": run.summary().upload_bytes_per_client_round,
        "sent_bytes": fmean(line["sent_bytes"]["total"] for line in lines),
        "received_bytes": fmean(line["received_bytes"]["total"] for line in lines),
    }


def complete(result: dict[str, Any]) -> list[str]:
    """Return the settings whose runs are all there."""
    return [name for name in SETTINGS if all(len(found(result, name, alpha)) == len(SEEDS) for alpha in ALPHAS)]


def found(result: dict[str, Any], setting: str, alpha: float) -> list[dict[str, Any]]:
    """Return the runs of a setting with one α, one per seed."""
    return [run for run in result["runs"] if (run["setting"], run["alpha"]) == (setting, alpha)]


def table(result: dict[str, Any]) -> str:
    """Return mean and standard deviation over the seeds, early and at the end, by α and setting."""
    settings = complete(result)
    heads = []
    for name in settings:
        rounds = SETTINGS[name]["rounds"]
        early = rounds // 4 - LAST // 2  # As in `train`: means of five rounds, not single ones.
        heads += [f"{name}, rounds {early + 1} to {early + LAST}", f"rounds {rounds - LAST + 1} to {rounds}"]
    lines = [
        f"| α | users per coordinate | {' | '.join(heads)} |",
        f"| ---: | ---: | {' | '.join(['---:'] * len(heads))} |",
    ]
    for alpha in ALPHAS:
        users = fmean(run["contributors"] for name in settings for run in found(result, name, alpha))
        cells = [
            spread([run[when] for run in found(result, name, alpha)])
            for name in settings
            for when in ("accuracy_at_a_quarter", "accuracy")
        ]
        lines.append(f"| {alpha:g} | {users:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def spread(accuracies: list[float]) -> str:
    """Return mean ± standard deviation, in percent."""
    return f"{fmean(accuracies):.1f} ± {stdev(accuracies):.1f} %"


def published(document: str, result: dict[str, Any]) -> str:
    """Return the document with its table as the result has it."""
    before, rest = document.split(BEGIN)
    return before + BEGIN + table(result) + END + rest.split(END, 1)[1]


def publish(result: dict[str, Any]) -> None:
    """Write the README's table."""
    README.write_text(published(README.read_text(encoding="utf-8"), result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
