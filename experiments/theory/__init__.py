"""Every theorem, lemma and corollary of the paper, on data."""

from experiments.common.experiment import Experiment
from experiments.theory.config import SCALES
from experiments.theory.plot import compare, plot
from experiments.theory.run import run

EXPERIMENT = Experiment(
    name="theory",
    title="the theorems and lemmas, on data",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
    needs=lambda _: ("digits",),
)
