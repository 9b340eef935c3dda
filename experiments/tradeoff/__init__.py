"""Accuracy at a fixed upload, and what it hides."""

from experiments.common.experiment import Experiment
from experiments.tradeoff.config import SCALES
from experiments.tradeoff.plot import compare, plot
from experiments.tradeoff.run import run

EXPERIMENT = Experiment(
    name="tradeoff",
    title="accuracy at a fixed upload, and what it hides",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
    needs=lambda config: (config.training.dataset,),
    seeds=lambda config: config.training.seeds,
    cpu_minutes=45,
)
