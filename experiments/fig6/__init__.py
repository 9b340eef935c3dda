"""MNIST, non-IID: upload and time until 94 %."""

from experiments.common.experiment import Experiment
from experiments.fig6.config import SCALES
from experiments.fig6.plot import compare, plot
from experiments.fig6.run import run

EXPERIMENT = Experiment(
    name="fig6",
    title="MNIST, non-IID: upload and time until 94 %",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
    needs=lambda config: (config.training.dataset,),
    seeds=lambda config: config.training.seeds,
)
