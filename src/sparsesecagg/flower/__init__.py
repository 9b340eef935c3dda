"""Secure aggregation for Flower: one line on each side.

from sparsesecagg.flower import SecAgg, secagg_mod

@app.train(mods=[secagg_mod])                     # ClientApp
strategy = SecAgg(FedAvg(...))                    # ServerApp

What the server does
    strategy   `SecAgg`, around an averaging strategy
    settings   what it is told, and strategies that can't be wrapped
    choice     what it chooses itself: groups for the nodes at hand where no alpha is given, the clips of the next round
    run        one run of the protocol, from the keys to the sums, and what a server that is started again needs
    exchanges  what it says to nodes, which node is which user, and what becomes of their replies
    courier    messages out, replies in
    figures    of the rounds, kept in a run folder
What a node does
    mod        `secagg_mod`, around the train function, and `evaluate_first`
    node       what its owner says: policy, identity and its proof, ledger (protocol/sqlite_ledger.py), weight
What travels
    records    control record, payload, packages, refusals, and the terms that all nodes must be told alike
    way_down   the model on its way to the nodes, whole or as steps from one that they have kept
    arrays     models as vectors
    errors     what can go wrong in between, and how it reaches the last line of `flwr run`
"""

from sparsesecagg.errors import MissingExtra

try:
    import flwr.serverapp  # noqa: F401
except ImportError:
    raise MissingExtra("flower", "secure aggregation in Flower") from None

from sparsesecagg.flower.errors import EmptyCohort, MissingMod, MissingStrategy, NotInRun, UnprovenNode
from sparsesecagg.flower.mod import evaluate_first, secagg_mod
from sparsesecagg.flower.strategy import SecAgg

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
