"""The protocol: a round of secure aggregation as two state machines without I/O.

parameters      everything public that a round depends on
stages          ADVERTISE_KEYS → SHARE_KEYS → UPLOAD → UNMASK
messages        what travels, and its bytes
locations       coded coordinates
draw            who draws the groups: a jury's statement, its reveals, and how everybody checks them
draw_messages   what travels in a draw
juror           a juror's side of it
draw_server     the server's side
plain_draw      the draw of a run without a roster
membership      who takes part: directory, members, digests
masking         adding masks to blocks
masked_update   select, quantise, mask
policy          what a client demands, whatever the server says
client          one user's side
client_state    what it remembers between stages
server          the server's side
masked_sum      adding uploads, taking away the masks that are left
opening         restoring secrets from shares
result          what a round leaves behind
run_round       a whole round on one page
allocation      reuse of freed memory
peak_memory     what the process has needed, for reports
"""

from sparsesecagg.protocol.client import Client
from sparsesecagg.protocol.parameters import RoundParameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.result import Result
from sparsesecagg.protocol.run_round import Outcome, Transcript, run_round
from sparsesecagg.protocol.server import Server
from sparsesecagg.protocol.stages import STAGES, Stage

__all__ = [
    "STAGES",
    "Client",
    "Outcome",
    "Policy",
    "Result",
    "RoundParameters",
    "Server",
    "Stage",
    "Transcript",
    "run_round",
]
