"""MNIST, IID: upload and time until 97 %."""

from experiments.common.experiment import Experiment
from experiments.fig5.config import SCALES
from experiments.fig5.plot import compare, plot
from experiments.fig5.run import run

EXPERIMENT = Experiment(
    name="fig5",
    title="MNIST, IID: upload and time until 97 %",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
    needs=lambda config: (config.training.dataset,),
    seeds=lambda config: config.training.seeds,
)
