"""What results/slices.json says: the must-show lines, the default α, and the tables of docs/slices.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.slices.training import DROPOUT
from sparsesecagg.field import Word
from sparsesecagg.planning.message_sizes import message_bytes
from sparsesecagg.protocol import Parameters, RoundOptions

ROOT = Path(__file__).parents[2]
RESULTS, DOCUMENT = ROOT / "results" / "slices.json", ROOT / "docs" / "slices.md"
BEGIN, END = "<!-- tables: results/slices.json -->\n", "<!-- end: slices -->\n"
WINDOW = 5
"""Accuracy at a round is the mean over this many rounds that end there, and over the seeds."""
FROM, STRETCH, CLOSE = 20, 10, 0.5
"""From this round on, in stretches of so many rounds, a default α stays within so many points of α = 1."""
EXCEPTED = ("MNIST, CNN", "shards")
"""Ten users with two classes each and a convolutional network: every α below 1 loses more than half a point there."""
CLOSE_TO_END, LAST = 2.0, 60
"""Rounds are counted until so many points below what everything sent has at this round."""

WIDE, SHORT_BITS = "MNIST, wide", {25: 8, 100: 9}
"""The task with more than 100,000 parameters, and the words that it is uploaded in, by the number of users."""
WIDE_DIM = 784 * 128 + 128 + 128 * 10 + 10

Run = dict[str, Any]
Curve = NDArray[np.float64]
PLAIN = {
    "shuffle": 0,
    "gain": "adaptive",
    "cut": "blocks",
    "strategy": "FedAvg",
    "levels": None,
    "epochs": 1,
    "partition": "iid",
}


def curve(runs: Iterable[Run], **wanted: Any) -> Curve | None:
    """Return the accuracy by round, the mean over the seeds, of the runs that are as wanted; None if there are none.

    What is not named is as usual: adaptive gain, blocks, FedAvg, nothing rounded, one epoch, IID.
    """
    asked = PLAIN | wanted
    found = [run["accuracy"] for run in runs if all(run.get(name, 0) == value for name, value in asked.items())]
    return np.mean(found, axis=0) if found else None


def at(values: Curve, number: int) -> float:
    """Return the accuracy at a round, counted from 1."""
    return float(values[max(0, number - WINDOW) : number].mean())


def rounds_until(values: Curve, target: float) -> int | None:
    """Return the first round at which the target is reached; None if it is not.

    Single rounds are compared, not windows: those would delay both curves alike and bring their ratio closer to 1.
    """
    reached = np.flatnonzero(values >= target)
    return int(reached[0]) + 1 if len(reached) else None


def deficit(values: Curve, whole: Curve) -> float:
    """Return the most points that a curve is below that of α = 1 in any stretch of rounds from round 20 on."""
    below = (whole - values)[FROM - 1 :]
    return max(float(part.mean()) for part in np.array_split(below, max(1, len(below) // STRETCH)))


def settings(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return the settings in which α are compared: those of one task, N, epochs and partition with α = 1."""
    usual = {"shuffle": 0, "strategy": "FedAvg", "levels": None, "alpha": 1.0}
    found = {
        tuple(run[name] for name in ("task", "users", "epochs", "partition")): None
        for run in runs
        if all(run.get(name, 0) == value for name, value in usual.items()) and run["task"] != WIDE
    }
    return [dict(zip(("task", "users", "epochs", "partition"), one, strict=True)) for one in found]


def worst_deficit(runs: list[Run], alpha: float) -> tuple[float, dict[str, Any]] | None:
    """Return the largest deficit of an α beyond what chance alone makes, and where.

    The task that no α below 1 stands is left out (`EXCEPTED`). None if some other setting was not measured.
    """
    found = []
    for setting in settings(runs):
        if (setting["task"], setting["partition"]) == EXCEPTED:
            continue
        values, whole = curve(runs, alpha=alpha, **setting), curve(runs, alpha=1.0, **setting)
        if values is None or whole is None:  # What was not measured must not pass for close.
            return None
        again = curve(runs, alpha=1.0, shuffle=1, **setting)
        chance = 0.0 if again is None else max(0.0, deficit(again, whole))
        found.append((deficit(values, whole) - chance, setting))
    return max(found, key=lambda one: one[0]) if found else None


def default_alpha(runs: list[Run]) -> float | None:
    """Return the smallest α that stays, as all larger ones do, within half a point of α = 1 from round 20 on.

    In every setting: an α that was not measured in one of them is no candidate.
    """
    answer = None
    for alpha in sorted({run["alpha"] for run in runs}, reverse=True):
        worst = worst_deficit(runs, alpha)
        if worst is None or worst[0] > CLOSE:
            break
        answer = alpha
    return answer


def published(page: str, result: dict[str, Any]) -> str:
    """Return the page with the tables."""
    runs = result["runs"]
    parts: list[Callable[[list[Run]], list[str]]] = [
        must_show_table,
        alpha_table,
        gain_table,
        cut_table,
        strategy_table,
        level_table,
        upload_table,
    ]
    text = "\n".join("\n".join(part(runs)) + "\n" for part in parts)
    if not result["complete"]:
        text = f"*{len(runs)} runs so far; the experiment is not complete.*\n\n" + text
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + text + END + rest.split(END, 1)[1]


def must_show_table(runs: list[Run]) -> list[str]:
    """Accuracy at round 40 and rounds to the target, for α = 0.2 and 0.1."""
    head = ["task", "N", "partition", "epochs", "α = 1", "α = 0.2", "α = 0.1", "rounds, α = 1", "α = 0.1", "ratio"]
    rows = []
    for setting in settings(runs):
        if setting["task"] not in ("digits", "MNIST"):
            continue
        whole, fifth, tenth = (curve(runs, alpha=alpha, **setting) for alpha in (1.0, 0.2, 0.1))
        if whole is None or fifth is None or tenth is None:
            continue
        base = at(whole, 40)
        target = at(whole, LAST) - CLOSE_TO_END
        until = [rounds_until(values, target) for values in (whole, tenth)]
        ratio = f"{until[1] / until[0]:.2f}" if until[0] and until[1] else "–"
        rows.append(
            [*_names(setting), f"{base:.1f} %", *(f"{at(one, 40) - base:+.2f}" for one in (fifth, tenth))]
            + [str(one or "–") for one in until]
            + [ratio]
        )
    title = "Accuracy at round 40 compared with α = 1, and rounds until two points below its accuracy at round 60:"
    return _table(title, head, rows)


def alpha_table(runs: list[Run]) -> list[str]:
    """The largest deficit from round 20 on, by α."""
    chosen = sorted({run["alpha"] for run in runs if run["alpha"] < 1}, reverse=True)
    rows = []
    for setting in settings(runs):
        whole = curve(runs, alpha=1.0, **setting)
        row = list(_names(setting))
        candidates = [curve(runs, alpha=1.0, shuffle=1, **setting)] + [curve(runs, alpha=a, **setting) for a in chosen]
        for values in candidates:
            row.append("" if values is None or whole is None else f"{-deficit(values, whole):+.2f}")
        if any(row[4:]):
            rows.append(row)
    title = (
        f"Points compared with α = 1, in the worst ten rounds from round {FROM} on. *Chance* is α = 1 again, with "
        f"samples in another order. The smallest α within half a point and chance in every row, the convolutional "
        f"network on shards left out: {default_alpha(runs)}."
    )
    return _table(title, ["task", "N", "partition", "epochs", "chance", *(f"α = {alpha:g}" for alpha in chosen)], rows)


def gain_table(runs: list[Run]) -> list[str]:
    """Fixed gains beside the adaptive one."""
    rows = []
    for setting in settings(runs):
        values = [curve(runs, alpha=0.1, gain=gain, **setting) for gain in (1, 3, 5, "1/κ", "adaptive")]
        if values[3] is None:
            continue
        whole = curve(runs, alpha=1.0, **setting)
        rows.append([*_names(setting), *(_two(one) for one in (*values, whole))])
    head = ["task", "N", "partition", "epochs", "gain 1", "3", "5", "10 = 1/κ", "adaptive", "everything sent"]
    return _table("Gains at α = 0.1, accuracy at rounds 20 / 40:", head, rows)


def cut_table(runs: list[Run]) -> list[str]:
    """Blocks, strides, stretches."""
    rows = []
    for setting in settings(runs):
        for gain in ("1/κ", "adaptive"):
            values = [
                curve(runs, alpha=0.1, gain=gain, cut=cut, **setting) for cut in ("blocks", "strides", "stretches")
            ]
            if values[1] is not None:
                rows.append([*_names(setting), gain, *(_two(one) for one in values)])
    head = ["task", "N", "partition", "epochs", "gain", "blocks", "strides", "stretches"]
    return _table("Ablation: how slices are cut, at α = 0.1, accuracy at rounds 20 / 40:", head, rows)


def strategy_table(runs: list[Run]) -> list[str]:
    """Wrapped strategies."""
    rows = []
    for setting in settings(runs):
        for strategy in dict.fromkeys(run["strategy"] for run in runs):
            values = [curve(runs, alpha=alpha, strategy=strategy, **setting) for alpha in (1.0, 0.2, 0.1)]
            if strategy != "FedAvg" and values[0] is not None:
                rows.append([*_names(setting), strategy, *(_two(one) for one in values)])
    head = ["task", "N", "partition", "epochs", "strategy", "α = 1", "α = 0.2", "α = 0.1"]
    return _table("Wrapped strategies, accuracy at rounds 20 / 40:", head, rows)


def level_table(runs: list[Run]) -> list[str]:
    """Rounding."""
    rows = []
    for setting in settings(runs):
        for alpha in (1.0, 0.2, 0.1):
            values = [curve(runs, alpha=alpha, levels=most, **setting) for most in (2, 4, 8, None)]
            if values[0] is not None:
                rows.append([*_names(setting), f"{alpha:g}", *(_two(one) for one in values)])
    head = ["task", "N", "partition", "epochs", "α", "2 levels", "4", "8", "unrounded"]
    return _table("Rounded by the quantiser over the adaptive clip, accuracy at rounds 20 / 40:", head, rows)


def most_levels(users: int, bits: int) -> int:
    """Return the levels on either side of zero that the sum of so many users leaves room for."""
    return Word.of(bits).largest // users


def upload_table(runs: list[Run]) -> list[str]:
    """The UPLOAD messages of one user, all of them until the target: those of SecAgg, and of slices in short words."""
    rows = []
    for users, partition in product(SHORT_BITS, ("iid", "shards")):
        setting, bits = {"task": WIDE, "users": users, "epochs": 1, "partition": partition}, SHORT_BITS[users]
        whole = curve(runs, alpha=1.0, **setting)
        tenth = curve(runs, alpha=0.1, levels=most_levels(users, bits), **setting)
        if whole is None or tenth is None:
            continue
        target = at(whole, LAST) - CLOSE_TO_END
        rounds = [rounds_until(values, target) for values in (whole, tenth)]
        sizes = [
            message_bytes(Parameters.create(users, WIDE_DIM, options)).upload
            for options in (
                RoundOptions("full", dropout=DROPOUT),
                RoundOptions(alpha=0.1, modulus_bits=bits, dropout=DROPOUT),
            )
        ]
        row = [*_names(setting)[1:3], f"{target:.1f} %", *(str(one or "–") for one in rounds), f"{bits} bits"]
        if rounds[0] and rounds[1]:
            totals = [number * size for number, size in zip(rounds, sizes, strict=True) if number]
            row += [*(f"{total / 1e6:.2f} MB" for total in totals), f"{totals[0] / totals[1]:.1f}×"]
        rows.append(row)
    head = ["N", "partition", "target", "rounds, SecAgg", "α = 0.1", "words", "uploaded, SecAgg", "α = 0.1", "less"]
    title = f"A model of {WIDE_DIM:,} parameters on MNIST, UPLOAD messages of one user until two points below SecAgg:"
    return _table(title, head, rows)


def _names(setting: dict[str, Any]) -> tuple[str, str, str, str]:
    partition = "IID" if setting["partition"] == "iid" else setting["partition"]
    return setting["task"], str(setting["users"]), partition, str(setting["epochs"])


def _two(values: Curve | None) -> str:
    return "" if values is None else f"{at(values, 20):.1f} / {at(values, 40):.1f}"


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    lines = [title, "", "| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
