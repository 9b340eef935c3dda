"""The pictures and the comparison of experiments that train to a target: Figures 3, 5 and 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, panels, save
from experiments.common.summaries import (
    MARKS,
    Seconds,
    Setting,
    Spread,
    paper_total,
    settings_of,
    training_for,
    wall_clock,
)

MEGABYTE = 1e6
_STYLES = ("-", "--", ":", "-.")


def draw_training(result: Mapping[str, Any], folder: Path, title: str, paper: Mapping[str, str]) -> list[Path]:
    """Draw savings beside the paper's, accuracy over rounds and wall-clock time of all runs."""
    runs, target = result["numbers"]["runs"], result["configuration"]["training"]["target"]
    revealed = result["numbers"].get("revealed")
    settings, seconds = settings_of(runs), wall_clock(result)
    figure, axes = panels(4 if revealed else 3, title)
    _bars_of_upload(axes[0], settings, paper)
    _accuracy(axes[1], runs, target)
    _bars_of_time(axes[2], settings, [_mean_seconds(setting, runs, seconds) for setting in settings], runs)
    if revealed:
        _bars_of_revealed(axes[3], revealed)
    return save(figure, folder, result["name"])


def compare_training(result: Mapping[str, Any], paper: Mapping[str, str]) -> list[Row]:
    """Return the savings at the target: medians and ranges over seeds, with the anonymity each setting gives."""
    runs = result["numbers"]["runs"]
    target, seconds = result["configuration"]["training"]["target"], wall_clock(result)
    rows: list[Row] = []
    for setting in settings_of(runs):
        who = f"N={setting.clients}, {setting.label}"
        rows.append(_rounds_row(who, setting, target))
        if setting.runs[0].get("normalisation") == "everybody":
            rows += _hypothesis_rows(setting, settings_of(runs), target, paper)
        if setting.system == "secagg" or all(base is None for base in setting.bases):
            continue
        rows += _upload_rows(who, setting, target, paper)
        rows.append(_clock_row(who, setting, runs, seconds, paper))
    return rows


def _rounds_row(who: str, setting: Setting, target: float) -> Row:
    crossed = setting.crossings(target)
    reached = sum(bool(run["reached_target_at"]) for run in setting.runs)
    best = max(max(run["accuracy"]) for run in setting.runs)
    marks = [(number, found) for number in MARKS if (found := setting.accuracy_at(number)) is not None]
    accuracies = ", ".join(f"{100 * found.median:.1f} % after {number}" for number, found in marks)
    lr = setting.runs[0].get("lr")
    return Row(
        f"{who}: rounds until {target:.0%}",
        "–",
        crossed.text() if crossed else f"not reached in {max(run['rounds'] for run in setting.runs)} ({best:.1%})",
        "; ".join(
            part
            for part in (
                f"{reached} of {len(setting.runs)} seeds reached it" if len(setting.runs) > 1 else "",
                f"accuracy {accuracies}" if accuracies else "",
                f"learning rate {lr:g}" if lr else "",
            )
            if part
        ),
    )


def _upload_rows(who: str, setting: Setting, target: float, paper: Mapping[str, str]) -> list[Row]:
    """Rows for our messages and, for the published pattern, for its own format: never the one beside the other."""
    published = _published(setting)
    per_round = fmean(
        _mean_upload(base) / _mean_upload(run)
        for run, base in zip(setting.runs, setting.bases, strict=True)
        if base is not None
    )
    otherwise = f"not reached; {per_round:.1f}× per round"
    rows = []
    if published:
        rows.append(
            Row(
                f"{who}, the paper's format: total upload less than SecAgg's until {target:.0%}",
                paper["upload"],
                _times(setting.upload_ratio(in_the_papers_format=True), otherwise),
                "d(32p + 1) bits beside SecAgg's 32d, computed",
            )
        )
    rows.append(
        Row(
            f"{who}, our messages: total upload less than SecAgg's until {target:.0%}",
            "–",
            _times(setting.upload_ratio(), otherwise),
            _anonymity(setting.runs[0]),
        )
    )
    return rows


def _hypothesis_rows(
    unscaled: Setting, settings: Sequence[Setting], target: float, paper: Mapping[str, str]
) -> list[Row]:
    """Compare the published pattern with a SecAgg that forgets 1/(1−θ), seed by seed, in the paper's format."""
    published = next(one for one in settings if one.clients == unscaled.clients and _published(one))
    bases = {run.get("seed"): run for run in unscaled.runs if run["reached_target_at"]}
    ratio = Spread.of(
        paper_total(bases[run.get("seed")]) / paper_total(run)
        for run in published.runs
        if run["reached_target_at"] and run.get("seed") in bases
    )
    return [
        Row(
            f"N={unscaled.clients}, {published.label}, the paper's format: total upload less than that of SecAgg "
            f"without 1/(1−θ) until {target:.0%}",
            paper["upload"],
            _times(ratio, "not reached"),
            "a hypothesis about the paper's baseline, not a comparison of protocols",
        )
    ]


def _published(setting: Setting) -> bool:
    """Tell whether this is the paper's pattern averaged by the paper's rule; older results used ours."""
    return setting.system == "pairwise" and "ablation" not in setting.label


def _clock_row(
    who: str, setting: Setting, runs: Sequence[Mapping[str, Any]], seconds: Sequence[Seconds], paper: Mapping[str, str]
) -> Row:
    published = _published(setting)
    of = {id(run): clock for run, clock in zip(runs, seconds, strict=True)}
    speedup = Spread.of(of[id(base)].total / of[id(run)].total for run, base in setting.pairs)
    note = _network(setting.runs[0])
    if setting.pairs:
        run, base = setting.pairs[0]
        mine, theirs = of[id(run)], of[id(base)]
        note = (
            f"training {mine.training:.0f} s, protocol {mine.protocol:.1f} s, transfer {mine.transfer:.1f} s, latency "
            f"{mine.latency:.1f} s (SecAgg {theirs.training:.0f}, {theirs.protocol:.1f}, {theirs.transfer:.1f}, "
            f"{theirs.latency:.1f}); {note}"
        )
        if published and (claimed := _number(paper["clock"])) is not None:
            needed = training_for(claimed, mine, theirs)
            note += (
                f"; {claimed:g}× would take {needed:.2g} s of training per round"
                if needed is not None
                else f"; {claimed:g}× would hold for no time of training"
            )
    return Row(
        f"{who}: wall-clock faster than SecAgg",
        paper["clock"] if published else "–",
        _times(speedup, "not reached", digits=2),
        note,
    )


def _network(run: Mapping[str, Any]) -> str:
    if "latency_ms" not in run:
        return "measured computing plus transfer at 100 Mbit/s"
    return f"measured computing, {run['bandwidth_mbit']:g} Mbit/s and {run['latency_ms']:g} ms each way"


def _number(text: str) -> float | None:
    head = text.split("×", maxsplit=1)[0]
    return float(head) if head.replace(".", "", 1).isdigit() else None


def _anonymity(run: Mapping[str, Any]) -> str:
    found = run["anonymity"]
    revealed = found["revealed_fraction"]
    return (
        f"T = {found['honest_contributors']:.1f} honest users per value with a third colluding; read in the clear "
        f"{_share(revealed['none collude'])} (none colluding), {_share(revealed['a third colludes'])} (a third)"
    )


def _share(fraction: float) -> str:
    return "0 %" if fraction < 1e-12 else f"{100 * fraction:.2g} %"


def _times(ratio: Spread | None, otherwise: str, digits: int = 1) -> str:
    return otherwise if ratio is None else ratio.text(digits, "×")


def _mean_upload(run: Mapping[str, Any]) -> float:
    return float(run["total_upload_bytes"] / max(1, sum(run["uploads"])))


def _mean_seconds(setting: Setting, runs: Sequence[Mapping[str, Any]], seconds: Sequence[Seconds]) -> Seconds:
    mine = [clock for run, clock in zip(runs, seconds, strict=True) if any(run is one for one in setting.runs)]
    parts = ("training", "protocol", "transfer", "latency")
    return Seconds(mine[0].rounds, *(fmean(getattr(one, part) for one in mine) for part in parts))


def _bars_of_upload(axes: Any, settings: Sequence[Setting], paper: Mapping[str, str]) -> None:
    """Draw how many times less is uploaded than with SecAgg; where the target was not reached, per round."""
    shown = [one for one in settings if one.system != "secagg" and any(base is not None for base in one.bases)]
    for number, setting in enumerate(shown):
        found = setting.upload_ratio()
        if found is None:
            found = Spread.of(
                _mean_upload(base) / _mean_upload(run)
                for run, base in zip(setting.runs, setting.bases, strict=True)
                if base is not None
            )
            mark = " *"
        else:
            mark = ""
        assert found is not None
        error = [[found.median - found.least], [found.most - found.median]]
        axes.bar(number, found.median, yerr=error, color=COLOURS[setting.system], width=0.7, capsize=3)
        axes.annotate(f"{found.median:.3g}×{mark}", (number, found.most), ha="center", va="bottom", fontsize=8)
    if (claimed := _number(paper["upload"])) is not None:
        axes.axhline(claimed, color=COLOURS["theory"], linewidth=0.9, linestyle="--", label=f"paper: {claimed:g}×")
        axes.legend(fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("times less than SecAgg (*: per round)")
    axes.set_title("upload until the target", fontsize=10)
    _name_bars(axes, shown)


def _bars_of_time(
    axes: Any, settings: Sequence[Setting], times: Sequence[Seconds], runs: Sequence[Mapping[str, Any]]
) -> None:
    shades = {"training": "#bbbbbb", "protocol": "#e59f4c", "transfer": "#1f6fb2", "latency": "#9fc5e8"}
    bottoms = [0.0] * len(settings)
    for part, colour in shades.items():
        heights = [getattr(time, part) for time in times]
        axes.bar(range(len(settings)), heights, bottom=bottoms, color=colour, width=0.7, label=part)
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
    axes.set_ylim(0, 1.3 * max(bottoms))  # Room for the legend.
    axes.set_ylabel("seconds, one user and the server")
    axes.set_title(f"wall clock, {_network(runs[0]).split(', ')[-1]}", fontsize=9)
    axes.legend(fontsize=8)
    _name_bars(axes, settings)


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
    named: set[str] = set()
    for run in runs:
        name = f"N={run['clients']}, {run['label']}"
        axes.plot(
            range(1, run["rounds"] + 1),
            [100 * value for value in run["accuracy"]],
            _STYLES[cohorts.index(run["clients"])],
            color=COLOURS[run["system"]],
            linewidth=1.0 if "(" in run["label"] else 1.5,
            alpha=0.5 if "(" in run["label"] else 0.9,
            label=None if name in named else name,
        )
        named.add(name)
    if target is not None:
        axes.axhline(100 * target, color="#2e8b57", linewidth=0.8)
    axes.set_ylim(0, 100)
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("test accuracy, %")
    axes.set_title("accuracy", fontsize=10)
    axes.legend(fontsize=6)


def _name_bars(axes: Any, settings: Sequence[Setting]) -> None:
    names = [f"{one.system}{' *' if '(' in one.label else ''}\nN={one.clients}" for one in settings]
    axes.set_xticks(range(len(settings)), names, fontsize=7, rotation=35, ha="right")
