"""Experiments that train to a target (Figures 3, 5 and 6): their pictures and their comparison with the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.common.experiment import Experiment, Row
from experiments.common.plotting import COLOURS, panels, save
from experiments.common.summaries import Run, Setting, Spread, one_more, settings_of, times
from experiments.common.training import Training, train_all

MEGABYTE = 1e6


@dataclass(frozen=True)
class Config:
    """A figure that trains."""

    training: Training


def to_target(
    name: str, title: str, paper: float, configurations: Mapping[str, Config], cpu_minutes: float
) -> Experiment:
    """Return an experiment that trains to a target; `paper` says how many times less was uploaded than by SecAgg."""
    return Experiment(
        name=name,
        title=title,
        configurations=configurations,
        run=lambda config, seed, work: train_all(config.training, seed, work),
        plot=draw,
        compare=lambda result: compare(result, paper),
        needs=lambda config: (config.training.dataset,),
        seeds=lambda config: config.training.seeds,
        cpu_minutes=cpu_minutes,
    )


def draw(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw accuracy against megabytes: the smallest cohort and the largest, a panel for each learning rate."""
    training, runs = result["configuration"]["training"], result["numbers"]["runs"]
    cohorts = sorted({run["clients"] for run in runs})
    shown = sorted({(run["clients"], run["lr"]) for run in runs if run["clients"] in (cohorts[0], cohorts[-1])})
    heading = f"{training['dataset']}, {training['partition']}"
    figure, axes = panels(len(shown), heading, 5.0, 3.8)
    for panel, (clients, lr) in zip(axes, shown, strict=True):
        named: set[str] = set()
        mine = [run for run in runs if (run["clients"], run["lr"]) == (clients, lr)]
        target = min(run.get("target", training["target"]) for run in mine)
        for run in mine:
            _line(panel, run, named, run.get("target", target) > target)
        panel.axhline(100 * target, color=COLOURS["good"], linewidth=0.8)
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_xlabel("MB uploaded per user, in our UPLOAD messages")
        panel.set_ylabel("test accuracy, %")
        rate = f", learning rate {lr:g}" if len({other for _, other in shown}) > 1 else ""
        panel.set_title(f"N = {clients}{rate}, target {target:.0%}", fontsize=10)
        panel.legend(fontsize=7, loc="lower right")
    return save(figure, folder, result["name"])


def _line(axes: Any, run: Run, named: set[str], longer: bool) -> None:
    sent = list(accumulate(size / MEGABYTE for size in run["upload_bytes"]))
    # Dotted: what is trained beside SecAgg, the published pattern and ours, to tell effects apart.
    beside = {"secagg": longer, "pairwise": run["normalisation"] != "expected", "sliced": run["modulus_bits"] == 32}
    axes.plot(
        sent,
        [100 * value for value in run["accuracy"]],
        ":" if beside[run["system"]] else "-",
        color=COLOURS[run["system"]],
        linewidth=1.3,
        alpha=0.8,
        label=None if run["label"] in named else run["label"],
    )
    named.add(run["label"])


def compare(result: Mapping[str, Any], paper: float) -> list[Row]:
    """Return rounds and savings at the target: medians and ranges over seeds, with the anonymity of each setting."""
    usual, rows = result["configuration"]["training"]["target"], []
    for setting in settings_of(result["numbers"]["runs"]):
        who = f"N={setting.clients}, {setting.label}, learning rate {setting.runs[0]['lr']:g}"
        rows.append(_rounds_row(who, setting, setting.target(usual)))
        if not setting.pairs or setting.system == "secagg":
            continue
        if setting.published:
            ratio = setting.upload_ratio(in_the_papers_format=True)
            note = "d(32p + 1) bits beside SecAgg's 32d, computed"
            rows.append(Row(f"{who}: upload less than SecAgg's, paper's format", f"{paper:g}×", times(ratio), note))
        rows.append(
            Row(f"{who}: upload less than SecAgg's, our messages", "–", times(setting.upload_ratio()), _hides(setting))
        )
    return rows


def _rounds_row(who: str, setting: Setting, target: float) -> Row:
    crossed = setting.rounds_until(target)
    best, longest = max(max(run["accuracy"]) for run in setting.runs), max(run["rounds"] for run in setting.runs)
    notes = [f"{len(crossed)} of {len(setting.runs)} seeds reached it"]
    if expected := one_more(crossed):
        notes.append(f"one more seed (95 %): {expected[0]:.1f} to {expected[1]:.1f}")
    notes.append(f"uploads missing {fmean(run['effective_dropout'] for run in setting.runs):.0%}")
    found = Spread.of(crossed)
    ours = found.text() if found else f"not reached in {longest} ({best:.1%})"
    return Row(f"{who}: rounds until {target:.0%}", "–", ours, "; ".join(notes))


def _hides(setting: Setting) -> str:
    found = setting.runs[0]["anonymity"]
    return (
        f"honest users per value, a third colluding: {found['honest_contributors']:.1f} on average, "
        f"{found['in_every_sum']} at least; read in the clear {found['revealed_fraction']:.0%}"
    )


def median_rounds(settings: Sequence[Setting], usual: float) -> list[tuple[int, Spread | None]]:
    """Return, per N, when the target was crossed: the usual one where runs name none."""
    return [(one.clients, Spread.of(one.rounds_until(one.target(usual)))) for one in settings]
