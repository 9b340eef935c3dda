"""Figures 3, 5 and 6: train with every system until a target. They differ in settings, and say the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.experiment import Experiment, Findings, Row
from experiments.common.pictures import compare_training, draw_training
from experiments.common.training import Training, train_all
from experiments.common.work import Work


@dataclass(frozen=True)
class Config:
    training: Training


def train(config: Config, seed: int, work: Work) -> Findings:
    """Train all runs of the figure."""
    return train_all(config.training, seed, work)


def to_target(
    name: str,
    title: str,
    paper: Mapping[str, str],
    configurations: Mapping[str, Config],
    run: Callable[[Any, int, Work], Findings] = train,
    further_rows: Callable[[Mapping[str, Any]], Sequence[Row]] = lambda _: (),
) -> Experiment:
    """Return an experiment; `paper` has its savings of upload and of wall-clock time."""

    def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
        training = result["configuration"]["training"]
        heading = f"{training['dataset']}, {training['partition']}, target {training['target']:.0%}"
        return draw_training(result, folder, heading, paper)

    return Experiment(
        name=name,
        title=title,
        configurations=configurations,
        run=run,
        plot=plot,
        compare=lambda result: [*compare_training(result, paper), *further_rows(result)],
        needs=lambda config: (config.training.dataset,),
        seeds=lambda config: config.training.seeds,
    )
