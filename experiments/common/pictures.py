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
    one_more,
    paper_total,
    settings_of,
    training_for,
    wall_clock,
)

MEGABYTE = 1e6
_STYLES = ("-", "--", ":", "-.")


def draw_training(result: Mapping[str, Any], folder: Path, title: str, paper: Mapping[str, str]) -> list[Path]:
    """Draw savings beside the paper's, accuracy over rounds, and rounds until the target."""
    runs, target = result["numbers"]["runs"], result["configuration"]["training"]["target"]
    revealed = result["numbers"].get("revealed")
    settings = settings_of(runs)
    figure, axes = panels(4 if revealed else 3, title, 5.0, 4.0)
    _bars_of_upload(axes[0], settings, paper)
    _accuracy(axes[1], runs, target)
    _bars_of_rounds(axes[2], settings, target)
    if revealed:
        _bars_of_revealed(axes[3], revealed)
    return save(figure, folder, result["name"])


def compare_training(result: Mapping[str, Any], paper: Mapping[str, str]) -> list[Row]:
    """Return the savings at the target: medians and ranges over seeds, with the anonymity each setting gives."""
    runs = result["numbers"]["runs"]
    target, seconds = result["configuration"]["training"]["target"], wall_clock(result)
    rows = [_search_row(found) for found in result["numbers"].get("search", ())]
    for setting in settings_of(runs):
        who = f"N={setting.clients}, {setting.label}"
        rows.append(_rounds_row(who, setting, target))
        if setting.runs[0].get("normalisation") == "everybody":
            rows += _hypothesis_rows(setting, settings_of(runs), target, paper)
        if setting.system == "secagg" or all(base is None for base in setting.bases):
            continue
        rows += _upload_rows(who, setting, target, paper)
        row = _clock_row(who, setting, runs, seconds, paper)
        rows.append(row._replace(note=f"{row.note}{_under_load(result)}"))
    return rows


def _search_row(found: Mapping[str, Any]) -> Row:
    tried = ", ".join(f"{one['lr']:g}: {one['accuracy'][-1]:.1%}" for one in found["tried"])
    first = found["tried"][0]
    rounds = len(first["accuracy"])
    return Row(
        f"N={found['clients']}: learning rate",
        "0.01",
        f"{found['chosen']:g}",
        f"best of {tried}, on {first['validation_samples']:,} training images held out, after {rounds} "
        f"round{'s' * (rounds > 1)} of plain averaging over {first['users']} users; the test set took no part",
    )


def _rounds_row(who: str, setting: Setting, target: float) -> Row:
    crossed = setting.crossings(target)
    reached = sum(bool(run["reached_target_at"]) for run in setting.runs)
    best = max(max(run["accuracy"]) for run in setting.runs)
    marks = [(number, found) for number in MARKS if (found := setting.accuracy_at(number)) is not None]
    accuracies = ", ".join(f"{100 * found.median:.1f} % after {number}" for number, found in marks)
    lr, expected = setting.runs[0].get("lr"), one_more(setting.rounds_until(target))
    return Row(
        f"{who}: rounds until {target:.0%}",
        "–",
        crossed.text() if crossed else f"not reached in {max(run['rounds'] for run in setting.runs)} ({best:.1%})",
        "; ".join(
            part
            for part in (
                f"{reached} of {len(setting.runs)} seeds reached it" if len(setting.runs) > 1 else "",
                f"one more seed (95 %): {expected[0]:.1f} to {expected[1]:.1f}" if expected else "",
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


def _under_load(result: Mapping[str, Any]) -> str:
    """Say how busy the machine was: seconds of training measured beside other work are no more than a hint."""
    load = result.get("machine", {}).get("load_before")
    return "" if load is None else f"; load {load:g} when it began, so see the wall clock of one round instead"


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


def _bars_of_upload(axes: Any, settings: Sequence[Setting], paper: Mapping[str, str]) -> None:
    """Draw how many times less is uploaded than with SecAgg, in the paper's format and in our messages."""
    shown = [one for one in settings if one.system != "secagg" and "(" not in one.label and one.pairs]
    bars: list[tuple[Setting, bool]] = [
        (one, format_of_paper) for one in shown for format_of_paper in ((True, False) if _published(one) else (False,))
    ]
    for number, (setting, format_of_paper) in enumerate(bars):
        found = setting.upload_ratio(format_of_paper)
        assert found is not None
        axes.bar(
            number,
            found.median,
            yerr=_error(found),
            color=COLOURS[setting.system],
            alpha=1.0 if format_of_paper or setting.system == "committee" else 0.45,
            width=0.75,
            capsize=2,
        )
        axes.annotate(f"{found.median:.3g}×", (number, found.most), ha="center", va="bottom", fontsize=7)
        if format_of_paper and (claimed := _number(paper["upload"])) is not None:
            axes.plot((number - 0.45, number + 0.45), (claimed, claimed), color=COLOURS["theory"], linewidth=1.6)
            axes.annotate(f"paper {claimed:g}×", (number, claimed), ha="center", va="bottom", fontsize=6)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("times less than SecAgg")
    axes.set_title("upload until the target; pale: our messages", fontsize=9)
    names = [f"{one.system}{', paper' if paper_format else ''}\nN={one.clients}" for one, paper_format in bars]
    axes.set_xticks(range(len(bars)), names, fontsize=6, rotation=60, ha="right")


def _error(found: Spread) -> list[list[float]]:
    return [[found.median - found.least], [found.most - found.median]]


def _bars_of_rounds(axes: Any, settings: Sequence[Setting], target: float) -> None:
    """Draw the rounds until the target, with the range over the seeds."""
    shown = [(one, found) for one in settings if (found := one.crossings(target)) is not None]
    for number, (setting, found) in enumerate(shown):
        ablation = "(" in setting.label
        axes.bar(
            number,
            found.median,
            yerr=_error(found),
            color=COLOURS[setting.system],
            alpha=0.45 if ablation else 1.0,
            hatch="//" if ablation else "",
            width=0.75,
            capsize=2,
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("rounds, interpolated")
    axes.set_title(f"rounds until {target:.0%}; hatched: ablations", fontsize=9)
    _name_bars(axes, [one for one, _ in shown])


def _bars_of_revealed(axes: Any, revealed: Sequence[Mapping[str, Any]]) -> None:
    for shift, key, name, hatch, label in (
        (-0.2, "singled_out_fraction", "singled_out", "//", "as the paper counts"),
        (0.2, "revealed_fraction", "revealed", "", "as the audit reads"),
    ):
        percent = [100 * found[key] for found in revealed]
        places = [number + shift for number in range(len(revealed))]
        colours = [COLOURS[found["pattern"]] for found in revealed]
        axes.bar(places, percent, width=0.38, color=colours, hatch=hatch, edgecolor="white", label=label)
        for place, found in zip(places, revealed, strict=True):
            if "rounds" in found:  # The fewest and the most of single rounds.
                low, high = (100 * found["rounds"][name][end] for end in ("min", "max"))
                axes.plot((place, place), (low, high), color=COLOURS["theory"], linewidth=1)
        for place, value in zip(places, percent, strict=True):
            axes.annotate(f"{value:.2g}", (place, value), ha="center", va="bottom", fontsize=8)
    names = [f"{found['pattern']}\nN={found['clients']}" for found in revealed]
    axes.set_xticks(range(len(revealed)), names, fontsize=7, rotation=35, ha="right")
    axes.set_ylabel("% of honest users' values, a third colluding")
    axes.set_title("read in the clear; lines: single rounds", fontsize=9)
    axes.set_ylim(0, 100)
    axes.legend(fontsize=8)


def _accuracy(axes: Any, runs: Sequence[Mapping[str, Any]], target: float | None) -> None:
    cohorts = sorted({run["clients"] for run in runs})
    named: set[str] = set()
    for run in runs:
        if "(" in run["label"]:
            continue  # Ablations stand in the table.
        name = f"N={run['clients']}, {run['system']}"
        axes.plot(
            range(1, run["rounds"] + 1),
            [100 * value for value in run["accuracy"]],
            _STYLES[cohorts.index(run["clients"]) % len(_STYLES)],
            color=COLOURS[run["system"]],
            linewidth=1.0,
            alpha=0.8,
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
    names = [f"{one.system}\nN={one.clients}" for one in settings]
    axes.set_xticks(range(len(settings)), names, fontsize=6, rotation=60, ha="right")
