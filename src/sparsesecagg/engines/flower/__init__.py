"""Flower as the distributed engine: one line on each side.

strategy      the server's side, `SecAgg`
mod           the client's side, `secagg_mod`
invitations   whom the wrapped strategy wants to train
secure_round  one round, fed through Flower
courier       messages out, replies in
grid          Flower's own loop through the courier
records       what travels
arrays        models as vectors
terms         what all clients of a round must be told alike
keys          keys made before their round
state         what a client keeps between messages
policy        the client's demands, from its configuration
identity      who a node is in an authenticated run
seats         which node is which user of the roster
settings      the server's choices
refused       strategies that can't be wrapped
clip          the clips of the next round
history       figures of the rounds
errors        what can go wrong in between
deployment    a SuperLink and SuperNodes as processes of this machine
certificates  keys and certificates for it
demo          `make flower-demo`
"""

from sparsesecagg.engines.flower.errors import EmptyCohort, MissingMod, MissingStrategy, StaleContext, UnprovenNode
from sparsesecagg.engines.flower.mod import secagg_mod
from sparsesecagg.engines.flower.strategy import SecAgg

__all__ = ["EmptyCohort", "MissingMod", "MissingStrategy", "SecAgg", "StaleContext", "UnprovenNode", "secagg_mod"]
