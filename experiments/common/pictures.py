"""The pictures and the comparison of experiments that train to a target: Figures 3, 5 and 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, panels, save
from experiments.common.training import secagg_of

MEGABYTE = 1e6
_STYLES = ("-", "--", ":", "-.")


def draw_training(result: Mapping[str, Any], folder: Path, title: str) -> list[Path]:
    """Draw total upload, accuracy over rounds and wall-clock time of all runs."""
    runs, target = result["numbers"]["runs"], result["configuration"]["training"]["target"]
    revealed = result["numbers"].get("revealed")
    figure, axes = panels(4 if revealed else 3, title)
    _bars_of_upload(axes[0], runs)
    _accuracy(axes[1], runs, target)
    _bars_of_time(axes[2], runs, wall_clock(result))
    if revealed:
        _bars_of_revealed(axes[3], revealed)
    return save(figure, folder, result["name"])


def wall_clock(result: Mapping[str, Any]) -> list[dict[str, float]]:
    """Return each run's seconds until it ended: training, protocol, transfer.

    Local training is the same work in every system, so each is charged the mean over its cohort: what differs between
    systems is then what the systems do, and not what else the machine had to do that minute.
    """
    timings, runs = result["timings"]["runs"], result["numbers"]["runs"]
    seconds = []
    for run, timing in zip(runs, timings, strict=True):
        cohort = [one["training_seconds_per_round"] for one in timings if one["clients"] == run["clients"]]
        protocol = timing["client_seconds_per_round"] + timing["server_seconds_per_round"]
        seconds.append(
            {
                "training": fmean(cohort) * run["rounds"],
                "protocol": protocol * run["rounds"],
                "transfer": run["transfer_seconds"],
            }
        )
    return seconds


def compare_training(result: Mapping[str, Any], paper: Mapping[str, str]) -> list[Row]:
    """Return the savings at the target, with the anonymity each setting gives."""
    numbers = result["numbers"]
    target = result["configuration"]["training"]["target"]
    times = wall_clock(result)
    rows = []
    for run, ratio, clock in zip(numbers["runs"], numbers["ratios"], times, strict=True):
        if run["system"] == "secagg":
            continue
        secagg = secagg_of(numbers["runs"], run["clients"])
        if secagg is None:
            continue
        base = times[numbers["runs"].index(secagg)]
        who = f"N={run['clients']}, {run['label']}"
        published = run["system"] == "pairwise"
        rows.append(
            Row(
                f"{who}: total upload less than SecAgg's until {target:.0%}",
                paper["upload"] if published else "–",
                _times(ratio["upload_until_target"], f"not reached; {ratio['upload_per_round']:.1f}× per round"),
                f"rounds: {_rounds(run)} against {_rounds(secagg)}; {_anonymity(run)}",
            )
        )
        speedup = sum(base.values()) / sum(clock.values()) if ratio["upload_until_target"] else None
        rows.append(
            Row(
                f"{who}: wall-clock faster than SecAgg",
                paper["clock"] if published else "–",
                _times(speedup, "not reached", digits=2),
                "measured computing plus transfer at 100 Mbit/s",
            )
        )
    return rows


def _rounds(run: Mapping[str, Any]) -> str:
    reached = run["reached_target_at"]
    return str(reached) if reached else f"over {run['rounds']} ({max(run['accuracy']):.1%} so far)"


def _anonymity(run: Mapping[str, Any]) -> str:
    found = run["anonymity"]
    revealed = found["revealed_fraction"]
    return (
        f"T = {found['honest_contributors']:.1f} honest users per value with a third colluding; read in the clear "
        f"{_share(revealed['none collude'])} (none colluding), {_share(revealed['a third colludes'])} (a third)"
    )


def _share(fraction: float) -> str:
    return "0 %" if fraction < 1e-12 else f"{100 * fraction:.2g} %"


def _times(ratio: float | None, otherwise: str, digits: int = 1) -> str:
    return otherwise if ratio is None else f"{ratio:.{digits}f}×"


def _bars_of_upload(axes: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    sizes = [run["total_upload_bytes"] / MEGABYTE for run in runs]
    axes.bar(range(len(runs)), sizes, color=[COLOURS[run["system"]] for run in runs], width=0.7)
    for number, (run, size) in enumerate(zip(runs, sizes, strict=True)):
        mark = "" if run["reached_target_at"] else " *"
        axes.annotate(f"{size:,.4g}{mark}", (number, size), ha="center", va="bottom", fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("total upload of all users, MB")
    axes.set_title("upload until the target", fontsize=10)
    _name_bars(axes, runs)


def _bars_of_time(axes: Any, runs: Sequence[Mapping[str, Any]], times: Sequence[Mapping[str, float]]) -> None:
    shades = {"training": "#bbbbbb", "protocol": "#e59f4c", "transfer": "#1f6fb2"}
    bottoms = [0.0] * len(runs)
    for part, colour in shades.items():
        heights = [time[part] for time in times]
        axes.bar(range(len(runs)), heights, bottom=bottoms, color=colour, width=0.7, label=part)
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
    axes.set_ylim(top=1.3 * max(bottoms))  # Room for the legend.
    axes.set_ylabel("seconds, one user and the server")
    axes.set_title("wall clock at 100 Mbit/s", fontsize=10)
    axes.legend(fontsize=8)
    _name_bars(axes, runs)


def _bars_of_revealed(axes: Any, revealed: Sequence[Mapping[str, Any]]) -> None:
    for shift, key, hatch, label in (
        (-0.2, "singled_out_fraction", "//", "as the paper counts"),
        (0.2, "revealed_fraction", "", "as the audit reads"),
    ):
        percent = [100 * found[key] for found in revealed]
        places = [number + shift for number in range(len(revealed))]
        colours = [COLOURS[found["pattern"]] for found in revealed]
        axes.bar(places, percent, width=0.38, color=colours, hatch=hatch, edgecolor="white", label=label)
        for place, value in zip(places, percent, strict=True):
            axes.annotate(f"{value:.2g}", (place, value), ha="center", va="bottom", fontsize=8)
    names = [f"{found['pattern']}\nN={found['clients']}" for found in revealed]
    axes.set_xticks(range(len(revealed)), names, fontsize=7, rotation=35, ha="right")
    axes.set_ylabel("% of honest users' values, a third colluding")
    axes.set_title("read in the clear", fontsize=10)
    axes.legend(fontsize=8)


def _accuracy(axes: Any, runs: Sequence[Mapping[str, Any]], target: float | None) -> None:
    cohorts = sorted({run["clients"] for run in runs})
    for run in runs:
        axes.plot(
            range(1, run["rounds"] + 1),
            [100 * value for value in run["accuracy"]],
            _STYLES[cohorts.index(run["clients"])],
            color=COLOURS[run["system"]],
            label=f"N={run['clients']}, {run['label']}",
        )
    if target is not None:
        axes.axhline(100 * target, color="#2e8b57", linewidth=0.8)
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("test accuracy, %")
    axes.set_title("accuracy", fontsize=10)
    axes.legend(fontsize=7)


def _name_bars(axes: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    axes.set_xticks(
        range(len(runs)), [f"{run['system']}\nN={run['clients']}" for run in runs], fontsize=7, rotation=35, ha="right"
    )
