"""Draw Figure 2 and compare it with the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, panels, save
from experiments.fig2.config import PAPER

_NAMES = {"iid": "IID", "shards": "non-IID (shards)"}
_KINDS = {
    "top": ("top-K", COLOURS["pairwise"], "o"),
    "random": ("rand-K", COLOURS["sliced"], "D"),
    "dense": ("top-K counted beside dense training", COLOURS["secagg"], "s"),
}


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the mean overlap over rounds, with one standard deviation to either side, and the paper's values."""
    config, runs = result["configuration"], result["numbers"]["runs"]
    partitions = list(dict.fromkeys(run["partition"] for run in runs))
    title = f"{config['dataset']}, N = {config['clients']}, K = {config['fraction']:g}·d: locations in common"
    figure, axes = panels(len(partitions), title, 5.2, 4.0)
    highest = max(one["overlap"]["mean"] + one["overlap"]["deviation"] for run in runs for one in run["rounds"])
    for panel, partition in zip(axes, partitions, strict=True):
        for run in runs:
            if run["partition"] == partition:
                _draw(panel, run, large=run["users"] < config["clients"])
        last = max(run["rounds"][-1]["round"] for run in runs)
        for kind in ("top", "random"):
            _, colour, _ = _KINDS[kind]
            panel.plot(
                (1, last),
                PAPER[partition][kind] if partition in PAPER else (),
                "x",
                color=colour,
                markersize=8,
                label=f"paper, {_KINDS[kind][0]}",
            )
        panel.set_ylim(0, max(40, 160 * highest))
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_xlabel("round")
        panel.set_ylabel("% of K, mean over pairs of users")
        panel.set_title(_NAMES.get(partition, partition), fontsize=10)
        panel.legend(fontsize=7, loc="upper right", ncols=2)
    return save(figure, folder, result["name"])


def _draw(panel: Any, run: Mapping[str, Any], large: bool) -> None:
    label, colour, marker = _KINDS[run["kind"]]
    numbers = [one["round"] for one in run["rounds"]]
    means = [100 * one["overlap"]["mean"] for one in run["rounds"]]
    around = [100 * one["overlap"]["deviation"] for one in run["rounds"]]
    if large:
        panel.errorbar(
            numbers, means, around, fmt="^", color="#8e6bbf", markersize=5, capsize=3, label=f"{label}, {run['model']}"
        )
        return
    panel.plot(numbers, means, marker=marker, markersize=3, color=colour, label=label)
    low, high = ([mean + side * spread for mean, spread in zip(means, around, strict=True)] for side in (-1, 1))
    panel.fill_between(numbers, low, high, color=colour, alpha=0.2, linewidth=0)


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return the overlap at the beginning and at the end."""
    rows = []
    for run in result["numbers"]["runs"]:
        first, last = run["rounds"][0], run["rounds"][-1]
        label, _, _ = _KINDS[run["kind"]]
        several = len(run["rounds"]) > 1
        rows.append(
            Row(
                f"{_NAMES.get(run['partition'], run['partition'])}, {label}, {run['model']}",
                _paper(run["partition"], run["kind"]),
                f"{_share(first['overlap'])} in round 1"
                + (f", {_share(last['overlap'])} in round {last['round']}" if several else ""),
                f"{run['dim']:,} parameters, {run['samples']:,} samples, {run['users']} users counted; "
                f"accuracy {first['accuracy']:.1%}" + (f" to {last['accuracy']:.1%}" if several else ""),
            )
        )
    return rows


def _paper(partition: str, kind: str) -> str:
    if kind not in PAPER.get(partition, {}):
        return "–"
    first, later = PAPER[partition][kind]
    return f"{first:g} %" if first == later else f"{first:g} % at first, falling to {later:g} %"


def _share(found: Mapping[str, float]) -> str:
    return f"{100 * found['mean']:.1f} ± {100 * found['deviation']:.1f} %"
