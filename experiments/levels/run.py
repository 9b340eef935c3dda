"""Train with few and with many quantisation levels, by the size of the group; write results/levels.json.

    .venv/bin/python -m experiments.levels.run [--without-mnist]

One group of m users sends the default fraction of the model, another slice in each round, and the server moves by gain
times mean; a tenth of the users drops out, and the updates are rounded by the real quantiser over the real adaptive
clip. Keys and masks are left out: they change no sum. A number of levels is enough for m if the accuracy, on average
over the seeds, is within 0.3 points of that with 32 levels in every task: what the clip costs, with however many
levels, is another matter. `planning/message_sizes.py` has the rule, a test compares the two, docs/planning.md has the
table.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.progress import track

from experiments.common.results import commit
from experiments.downlink.training import LAST, Task
from sparsesecagg import __version__
from sparsesecagg.downlink.gain import DEFAULT_ALPHA, Gain
from sparsesecagg.lab.learning.data import Dataset, load_dataset, make_partition
from sparsesecagg.lab.learning.models import DenseNetwork, LocalTraining
from sparsesecagg.lab.learning.secure import AdaptiveClip
from sparsesecagg.planning.message_sizes import default_levels, shortest_word
from sparsesecagg.rounding import Quantizer

ROOT = Path(__file__).parents[2]
RESULTS, DOCUMENT = ROOT / "results" / "levels.json", ROOT / "docs" / "planning.md"
BEGIN, END = "<!-- table: results/levels.json -->\n", "<!-- end: levels -->\n"
SEEDS = (0, 1, 2)
MEMBERS = (5, 10, 20, 50, 100)
LEVELS = (1, 2, 4, 8, 32)
BLOCK = 10
"""Coordinates of which the group sends `BLOCK` · α in each round."""
DROPOUT = 0.1
ENOUGH = 0.3
"""Points of accuracy that rounding may cost."""

_DIGITS = LocalTraining(epochs=5, batch=10, lr=0.1)
_MNIST = LocalTraining(epochs=1, batch=20, lr=0.05)
TASKS = {
    "digits, IID": Task("digits", "iid", 0, 0, 200, 64, 30, _DIGITS),
    "digits, shards": Task("digits", "shards", 0, 0, 200, 64, 30, _DIGITS),
    "MNIST, IID": Task("mnist", "iid", 0, 0, 150, 100, 20, _MNIST),
    "MNIST, shards": Task("mnist", "shards", 0, 0, 150, 100, 20, _MNIST),
}
"""`users` and `chosen` follow from the size of the groups."""


def main() -> None:
    """Measure, save, publish."""
    tasks = {name: task for name, task in TASKS.items() if "--without-mnist" not in sys.argv or task.dataset != "mnist"}
    cells = [(name, members) for name in tasks for members in MEMBERS]
    runs = [
        {"task": name, "members": members, "levels": levels, "accuracies": accuracies(tasks[name], members, levels)}
        for name, members in track(cells, description="training")
        for levels in (*LEVELS, None)
    ]
    result = {
        "command": "python -m experiments.levels.run",
        "version": __version__,
        "commit": commit(),
        "seeds": list(SEEDS),
        "configuration": {"alpha": DEFAULT_ALPHA, "dropout": DROPOUT, "points": ENOUGH},
        "runs": runs,
        "enough": {str(members): enough(runs, members) for members in MEMBERS},
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    DOCUMENT.write_text(published(DOCUMENT.read_text(encoding="utf-8"), result), encoding="utf-8")


def accuracies(task: Task, members: int, levels: int | None) -> list[float]:
    """Return the accuracy in percent at the end of a run, by seed."""
    return [round(accuracy(task, members, levels, seed), 3) for seed in SEEDS]


@cache
def _load(name: str) -> Dataset:
    return load_dataset(name)


def accuracy(task: Task, members: int, levels: int | None, seed: int) -> float:
    """Train one run; `levels` of None adds up the updates as they are."""
    data = _load(task.dataset)
    x, y = data.train_x.reshape(len(data.train_x), -1), data.train_y
    network = DenseNetwork(x.shape[1], len(data.classes), (task.hidden,))
    own = [part[: task.samples] for part in make_partition(data, task.partition, members, seed).indices]
    model = network.initial(seed)
    rng = np.random.default_rng([seed, members])  # The same users drop out whatever the levels.
    rounding = np.random.Generator(np.random.SFC64(seed))
    clip = AdaptiveClip(network.layers, model, levels or 1 << 20)
    gain, turns = Gain(DEFAULT_ALPHA), slice_turns(network.dim, rng)
    found = list[float]()
    for number in range(task.rounds):
        there = np.flatnonzero(rng.random(members) >= DROPOUT)
        updates = np.array(
            [
                network.train_local(model, x[own[user]], y[own[user]], task.how, members * number + int(user)) - model
                for user in there
            ]
        )
        covered = (turns - round(BLOCK * DEFAULT_ALPHA) * number) % BLOCK < BLOCK * DEFAULT_ALPHA
        mean, scale = np.zeros(network.dim, np.float32), clip.per_coordinate()
        total, clipped = summed(updates[:, covered], scale[covered], levels, rounding)
        mean[covered] = total / len(there)
        clip.follow(mean, covered, clipped)
        model = model + gain.step(mean, covered)
        if number >= task.rounds - LAST:
            result = network.evaluate(model, data.test_x, data.test_y)
            found.append(100 * result.correct / result.samples)
    return fmean(found)


def slice_turns(dim: int, rng: np.random.Generator) -> Any:
    """Return when the coordinates of each block take their turn: neighbours, from a random one on."""
    offsets = rng.integers(0, BLOCK, -(-dim // BLOCK))
    return ((np.arange(BLOCK) + offsets[:, None]) % BLOCK).reshape(-1)[:dim]


def summed(updates: Any, clip: Any, levels: int | None, rng: np.random.Generator) -> tuple[Any, float]:
    """Return the sum of some users' updates as a round would give it, and the part of their values that was clipped."""
    if levels is None:
        return updates.sum(axis=0), 0.0
    quantizer = Quantizer(levels, float(levels))
    integers, clipped = quantizer.quantize(updates / clip, 1.0, rng)
    return quantizer.dequantize(integers.sum(axis=0, dtype=np.int64)) * clip, clipped / updates.size


def losses(runs: list[dict[str, Any]], members: int, levels: int, beside: int | None = None) -> dict[str, float]:
    """Return by task how many points of accuracy it costs to round to levels, on average over the seeds.

    Beside unrounded sums that are not clipped either, unless another number of levels is named.
    """
    means = {(run["task"], run["levels"]): fmean(run["accuracies"]) for run in runs if run["members"] == members}
    return {task: means[task, beside] - mean for (task, own), mean in means.items() if own == levels}


def enough(runs: list[dict[str, Any]], members: int) -> int | None:
    """Return the fewest levels that are enough, together with all larger numbers; None if none is."""
    answer = None
    for levels in reversed(LEVELS):
        if max(losses(runs, members, levels, beside=LEVELS[-1]).values()) > ENOUGH:
            break
        answer = levels
    return answer


def published(page: str, result: dict[str, Any]) -> str:
    """Return the page with the table."""
    head = "| users of a group | " + " | ".join(f"{levels} level{'s' * (levels > 1)}" for levels in LEVELS)
    lines = [head + " | fewest that are enough | default | word |", "| ---: " * (len(LEVELS) + 4) + "|"]
    for members in MEMBERS:
        worst = [max(losses(result["runs"], members, levels).values()) for levels in LEVELS]
        chosen = default_levels(members)
        lines.append(
            f"| {members} | "
            + " | ".join(f"{loss:+.2f}" for loss in worst)
            + f" | {result['enough'][str(members)] or 'none'} | {chosen} | {shortest_word(members, chosen)} bits |"
        )
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    main()
