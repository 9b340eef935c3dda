"""Draw Figure 2 and compare it with the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, panels, save
from experiments.fig2.config import PAPER

_NAMES = {"iid": "IID", "shards": "non-IID (shards)"}
_KINDS = {"top": ("top-K", COLOURS["pairwise"], "o"), "random": ("rand-K", COLOURS["committee"], "D")}


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the mean overlap over rounds, with one standard deviation to either side."""
    config, runs = result["configuration"], result["numbers"]["runs"]
    title = f"{config['dataset']}, N = {config['clients']}, K = {config['fraction']:g}·d: locations in common"
    figure, axes = panels(len(runs), title, 4.6, 3.6)
    highest = max(one["top"]["mean"] + one["top"]["deviation"] for run in runs for one in run["rounds"])
    for panel, run in zip(axes, runs, strict=True):
        numbers = [one["round"] for one in run["rounds"]]
        for kind, (label, colour, marker) in _KINDS.items():
            means = [100 * one[kind]["mean"] for one in run["rounds"]]
            around = [100 * one[kind]["deviation"] for one in run["rounds"]]
            panel.plot(numbers, means, marker=marker, markersize=3, color=colour, label=label)
            low, high = ([mean + side * spread for mean, spread in zip(means, around, strict=True)] for side in (-1, 1))
            panel.fill_between(numbers, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.axhline(100 * config["fraction"], color=COLOURS["theory"], linewidth=0.8, linestyle=":", label="K/d")
        panel.set_ylim(0, 130 * highest)
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_xlabel("round")
        panel.set_ylabel("% of K, mean over pairs of users")
        panel.set_title(_NAMES.get(run["partition"], run["partition"]), fontsize=10)
        panel.legend(fontsize=8, loc="upper right", ncols=3)
    return save(figure, folder, result["name"])


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return the overlap at the beginning and at the end."""
    rows = []
    for run in result["numbers"]["runs"]:
        first, last = run["rounds"][0], run["rounds"][-1]
        for kind, (label, _, _) in _KINDS.items():
            rows.append(
                Row(
                    f"{_NAMES.get(run['partition'], run['partition'])}, {label}",
                    PAPER.get(run["partition"], {}).get(kind, "–"),
                    f"{_share(first[kind])} in round 1, {_share(last[kind])} in round {last['round']}",
                    f"{run['model']}, {run['dim']:,} parameters, {run['samples']:,} samples; "
                    f"accuracy {first['accuracy']:.1%} to {last['accuracy']:.1%}",
                )
            )
    return rows


def _share(found: Mapping[str, float]) -> str:
    return f"{100 * found['mean']:.1f} ± {100 * found['deviation']:.1f} %"
