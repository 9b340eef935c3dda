"""Search for the learning rates, then train until the target with every system."""

from __future__ import annotations

from dataclasses import replace

from experiments.common.experiment import Findings
from experiments.common.training import train_all
from experiments.common.work import Work
from experiments.fig3.config import Config
from experiments.fig3.search import chosen_rate, search


def run(config: Config, seed: int, work: Work) -> Findings:
    """Train all runs of the figure."""
    if config.search is None:
        return train_all(config.training, seed, work)
    found = search(config.search, config.training.dataset, seed, work)
    cohorts = tuple(replace(one, lr=chosen_rate(found, one.clients)) for one in config.training.cohorts)
    trained = train_all(replace(config.training, cohorts=cohorts), seed, work)
    return trained._replace(numbers=trained.numbers | {"search": found})
