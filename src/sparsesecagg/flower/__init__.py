"""Secure aggregation for Flower: four lines in all.

from sparsesecagg.flower import SecAgg, secagg_mod

@app.train(mods=[secagg_mod])                     # ClientApp
strategy = SecAgg(FedAvg(...))                    # ServerApp

What the server does
    strategy   `SecAgg`, around an averaging strategy
    settings   what it is told and what it chooses, strategies that can't be wrapped, sentences for the log
    run        one run of the protocol, from the keys to the sums
    transport  a grid that collects replies itself, and which node is which user
    state      what it carries from round to round: ranges, gain, privacy spent; and what a restarted server finds
    figures    the record of each round, and the run folder
What a node does
    mod        `secagg_mod`, around the train function, and `evaluate_first`
    node       what its owner says: policy, identity and its proof, ledger, weight, metrics
    examples   `per_example_steps`: what each example changes in a PyTorch model
What travels
    messages   packets, refusals, and the digest of what an app sees, that every header is bound to
    downlink   the model on its way to the nodes, whole or as steps from one that they have kept
    arrays     which arrays of a model travel
    packing    where they stand in the vector of a run, and how they are written there
    errors     what can go wrong in between
"""

from sparsesecagg.errors import MissingExtra

try:
    import flwr.serverapp  # noqa: F401
except ImportError:
    raise MissingExtra("flower", "secure aggregation in Flower") from None

from sparsesecagg.flower.errors import AppFailed, MissingMod, MissingStrategy, RefusedByAll, UnprovenNode
from sparsesecagg.flower.examples import per_example_steps
from sparsesecagg.flower.mod import evaluate_first, secagg_mod
from sparsesecagg.flower.strategy import SecAgg
from sparsesecagg.planning.noise import DifferentialPrivacy
from sparsesecagg.protocol import RoundOptions

__all__ = [
    "AppFailed",
    "DifferentialPrivacy",
    "MissingMod",
    "MissingStrategy",
    "RefusedByAll",
    "RoundOptions",
    "SecAgg",
    "UnprovenNode",
    "evaluate_first",
    "per_example_steps",
    "secagg_mod",
]
