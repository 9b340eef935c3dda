"""Secure aggregation for Flower: one line on each side.

from sparsesecagg.flower import SecAgg, secagg_mod

@app.train(mods=[secagg_mod])                     # ClientApp
strategy = SecAgg(FedAvg(...), alpha=0.1)         # ServerApp
"""

from sparsesecagg.errors import MissingExtra

try:
    import flwr.serverapp  # noqa: F401
except ImportError:
    raise MissingExtra("flower", "secure aggregation in Flower") from None

from sparsesecagg.engines.flower import (
    EmptyCohort,
    MissingMod,
    MissingStrategy,
    NotInRun,
    SecAgg,
    UnprovenNode,
    secagg_mod,
)

__all__ = ["EmptyCohort", "MissingMod", "MissingStrategy", "NotInRun", "SecAgg", "UnprovenNode", "secagg_mod"]
