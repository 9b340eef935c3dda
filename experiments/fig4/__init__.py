"""Privacy against sparsity: honest contributors per coordinate, and what is revealed."""

from experiments.common.experiment import Experiment
from experiments.fig4.config import SCALES
from experiments.fig4.plot import compare, plot
from experiments.fig4.run import run

EXPERIMENT = Experiment(
    name="fig4",
    title="honest users per coordinate (T) and revealed values against α, a third adversarial",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
)
