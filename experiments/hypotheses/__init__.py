"""What might explain the paper's 17.9× and 12×, tested on Figures 3, 5 and 6 together."""

from experiments.common.experiment import Experiment
from experiments.hypotheses.config import SCALES
from experiments.hypotheses.plot import compare, plot
from experiments.hypotheses.run import run

EXPERIMENT = Experiment(
    name="hypotheses",
    title="what might explain the paper's savings: one table over Figures 3, 5 and 6",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
    needs=lambda config: tuple(dict.fromkeys(figure.dataset for figure in config.figures)),
    seeds=lambda config: config.seeds,
    cpu_minutes=900,
)
