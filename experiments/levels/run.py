"""Train with few and with many quantisation levels, by the size of the group; write results/levels.json.

    .venv/bin/python -m experiments.levels.run [--without-mnist]

Two groups of m users send half of the model each, in turn; a tenth of the users drops out, and the updates are
rounded by the real quantiser over the real adaptive clip. Keys and masks are left out: they change no sum. A number of
levels is enough for m if the accuracy, on average over the seeds, is within 0.3 points of that with 32 levels in every
task: what the clip costs, with however many levels, is another matter. `planning/message_sizes.py` has the rule, a test
compares the two, docs/planning.md has the table.

Then words of 6 bits beside words of 16, in ten groups of ten users that send a tenth of the model each.
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
from sparsesecagg.field import Word
from sparsesecagg.lab.learning.data import Dataset, load_dataset, make_partition
from sparsesecagg.lab.learning.models import DenseNetwork, LocalTraining
from sparsesecagg.lab.learning.secure import AdaptiveClip
from sparsesecagg.planning.message_sizes import default_levels, shortest_word
from sparsesecagg.rounding import Quantizer

ROOT = Path(__file__).parents[2]
RESULTS, DOCUMENT = ROOT / "results" / "levels.json", ROOT / "docs" / "planning.md"
BEGIN, END = "<!-- table: results/levels.json -->\n", "<!-- end: levels -->\n"
SEEDS = (0, 1, 2)
MEMBERS = (5, 10, 20, 40)
LEVELS = (1, 2, 4, 8, 32)
UNROUNDED = "unrounded"
GROUPS = 2
SHORT, LONG, TEN = 6, 16, 10
"""The words that are compared, and the users and number of the groups."""
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
    words = [
        {"task": name, "bits": bits, "levels": most, "accuracies": accuracies(TASKS[name], TEN, most, TEN)}
        for name in track(tasks, description="words")
        for bits, most in ((bits, Word.of(bits).largest // TEN) for bits in (SHORT, LONG))
    ]
    result = {
        "command": "python -m experiments.levels.run",
        "version": __version__,
        "commit": commit(),
        "seeds": list(SEEDS),
        "configuration": {"groups": GROUPS, "dropout": DROPOUT, "points": ENOUGH},
        "runs": runs,
        "words": words,
        "enough": {str(members): enough(runs, members) for members in MEMBERS},
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    DOCUMENT.write_text(published(DOCUMENT.read_text(encoding="utf-8"), result), encoding="utf-8")


def accuracies(task: Task, members: int, levels: int | None, groups: int = GROUPS) -> list[float]:
    """Return the accuracy in percent at the end of a run, by seed."""
    return [round(accuracy(task, members, levels, seed, groups), 3) for seed in SEEDS]


@cache
def _load(name: str) -> Dataset:
    return load_dataset(name)


def accuracy(task: Task, members: int, levels: int | None, seed: int, groups: int) -> float:
    """Train one run; `levels` of None adds up the updates as they are."""
    data, users = _load(task.dataset), groups * members
    x, y = data.train_x.reshape(len(data.train_x), -1), data.train_y
    network = DenseNetwork(x.shape[1], len(data.classes), (task.hidden,))
    own = [part[: task.samples] for part in make_partition(data, task.partition, users, seed).indices]
    model = network.initial(seed)
    rng = np.random.default_rng([seed, members])  # The same users drop out whatever the levels.
    rounding = np.random.Generator(np.random.SFC64(seed))
    clip = AdaptiveClip(network.layers, model, levels or 1 << 20)
    bounds = [network.dim * part // groups for part in range(groups + 1)]
    found = list[float]()
    for number in range(task.rounds):
        updates = np.array(
            [
                network.train_local(model, x[part], y[part], task.how, users * number + user) - model
                for user, part in enumerate(own)
            ]
        )
        survives = rng.random(users) >= DROPOUT
        scale, mean = clip.per_coordinate(), np.zeros(network.dim, np.float32)
        for group in range(groups):
            which = (group + number) % groups
            part = slice(bounds[which], bounds[which + 1])
            there = np.flatnonzero(survives[group * members : (group + 1) * members]) + group * members
            if len(there):
                mean[part] = summed(updates[there, part], scale[part], levels, rounding) / len(there)
        clip.follow(mean)
        model = model + mean
        result = network.evaluate(model, data.test_x, data.test_y)
        found.append(100 * result.correct / result.samples)
    return fmean(found[-LAST:])


def summed(updates: Any, clip: Any, levels: int | None, rng: np.random.Generator) -> Any:
    """Return the sum of some users' updates as a round would give it."""
    if levels is None:
        return updates.sum(axis=0)
    quantizer = Quantizer(levels, float(levels))
    integers, _ = quantizer.quantize(updates / clip, 1.0, rng)
    return quantizer.dequantize(integers.sum(axis=0, dtype=np.int64)) * clip


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
    lines += ["", f"| {TEN * TEN} users in groups of {TEN}, α = 1/{TEN} | {LONG} bits | {SHORT} bits | points |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    for task in dict.fromkeys(one["task"] for one in result["words"]):
        long, short = (
            fmean(next(one["accuracies"] for one in result["words"] if (one["task"], one["bits"]) == (task, bits)))
            for bits in (LONG, SHORT)
        )
        lines.append(f"| {task} | {long:.2f} % | {short:.2f} % | {short - long:+.2f} |")
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    main()
