"""Bytes per user and round with the CIFAR-10 model."""

from experiments.common.experiment import Experiment
from experiments.table1.config import SCALES
from experiments.table1.plot import compare, plot
from experiments.table1.run import run

EXPERIMENT = Experiment(
    name="table1",
    title="CIFAR-10 model: bytes that a user uploads per round",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
)
