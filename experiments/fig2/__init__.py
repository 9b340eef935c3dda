"""How few locations two users have in common when each chooses its own."""

from experiments.common.experiment import Experiment
from experiments.fig2.config import SCALES
from experiments.fig2.plot import compare, plot
from experiments.fig2.run import run

EXPERIMENT = Experiment(
    name="fig2",
    title="overlap of the locations that pairs of users choose, rand-K and top-K",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
    needs=lambda config: (config.dataset,),
)
