"""Flower as the distributed engine: one line on each side.

What the server does
    strategy   `SecAgg`, around an averaging strategy
    run        one run of the protocol, from the keys to the sums
    exchanges  what it says to nodes, and what becomes of their replies
    courier    messages out, replies in
    settings   what the server chooses, and strategies that can't be wrapped
    choice     groups for the nodes at hand, where no alpha is given
    seats      which node is which user
    clip       the clips of the next round
    way_down   the model on its way to the nodes, whole or as steps
What a node does
    mod        `secagg_mod`, around the train function
    node       what its owner says: policy, identity, ledger
    weights    its weight, on a coarse grid
    evaluation `evaluate_first`: metrics of an evaluation under the masks of the update
    replicas   the models that it has kept, so that steps can follow
What travels
    records    control record, payload, packages, refusals
    terms      what all nodes of a round must be told alike
    arrays     models as vectors
    steps      models and steps in records
What is kept
    figures    of the rounds, by the server; what a node keeps is in protocol/sqlite_ledger.py
    saved_run  what a server that is started again needs to go on
    errors     what can go wrong in between
    last_words errors as the last line of `flwr run`
"""

from sparsesecagg.engines.flower.errors import EmptyCohort, MissingMod, MissingStrategy, NotInRun, UnprovenNode
from sparsesecagg.engines.flower.evaluation import evaluate_first
from sparsesecagg.engines.flower.mod import secagg_mod
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
