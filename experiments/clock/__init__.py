"""Where a round's time goes: training, protocol, transfer, latency."""

from experiments.clock.config import SCALES
from experiments.clock.plot import compare, plot
from experiments.clock.run import run
from experiments.common.experiment import Experiment

EXPERIMENT = Experiment(
    name="clock",
    title="wall clock of one round: training, protocol, transfer and latency apart",
    configurations=SCALES,
    run=run,
    plot=plot,
    compare=compare,
    needs=lambda config: tuple(dict.fromkeys(setting.dataset for setting in config.settings)),
    cpu_minutes=60,
)
