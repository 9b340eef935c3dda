"""Secure aggregation for Flower: one line on each side.

from sparsesecagg.flower import SecAgg, secagg_mod

@app.train(mods=[secagg_mod])                     # ClientApp
strategy = SecAgg(FedAvg(...))                    # ServerApp
"""

from sparsesecagg.errors import MissingExtra

try:
    import flwr.serverapp  # noqa: F401
except ImportError:
    raise MissingExtra("flower", "secure aggregation in Flower") from None

from sparsesecagg.engines.flower.errors import EmptyCohort, MissingMod, MissingStrategy, NotInRun, UnprovenNode
from sparsesecagg.engines.flower.mod import evaluate_first, secagg_mod
from sparsesecagg.engines.flower.strategy import SecAgg

__all__ = [
    "EmptyCohort",
    "MissingMod",
    "MissingStrategy",
    "NotInRun",
    "SecAgg",
    "UnprovenNode",
    "evaluate_first",
    "secagg_mod",
]
