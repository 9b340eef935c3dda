"""CIFAR-10, IID: upload and time until 55 %."""

from experiments.common.experiment import Experiment
from experiments.fig3.config import SCALES
from experiments.fig3.plot import compare, plot
from experiments.fig3.run import run

EXPERIMENT = Experiment(
    name="fig3",
    title="CIFAR-10, IID: upload and time until 55 %",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
    needs=lambda config: (config.training.dataset,),
    seeds=lambda config: config.training.seeds,
)
