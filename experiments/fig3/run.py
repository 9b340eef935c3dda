"""Train until the target with every system."""

from __future__ import annotations

from experiments.common.experiment import Findings
from experiments.common.training import train_all
from experiments.common.work import Work
from experiments.fig3.config import Config


def run(config: Config, seed: int, work: Work) -> Findings:
    """Train all runs of the figure."""
    return train_all(config.training, seed, work)
