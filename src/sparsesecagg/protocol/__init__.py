"""The protocol: secure aggregation as two state machines without I/O.

parameters     the choices of a round, in one value; everything public that stays the same in a run
stages         ADVERTISE_KEYS once, then SHARE_KEYS ahead of each round, UPLOAD → UNMASK in it
messages       what travels, and its bytes
epoch          one group and its keys, ratchets of pairs, key packages; what a round is about, and the tags over it
policy         what a client demands, whatever the server says
checks         what a client checks before it does or releases anything: the rule of release
ledger         what a client remembers and has answered; sqlite_ledger: in a file that outlives the process
client         one user's side
server         the server's side of a run; server_group: of one group
opening        restoring secrets from shares
combine        from the sums of groups to the result of a round, also so that a few bad groups move it little
"""

from sparsesecagg.protocol.client import Client
from sparsesecagg.protocol.combine import Result
from sparsesecagg.protocol.ledger import Ledger, MemoryLedger
from sparsesecagg.protocol.parameters import Parameters, RoundOptions
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.server import Server
from sparsesecagg.protocol.sqlite_ledger import SqliteLedger
from sparsesecagg.protocol.stages import STAGES, Stage

__all__ = [
    "STAGES",
    "Client",
    "Ledger",
    "MemoryLedger",
    "Parameters",
    "Policy",
    "Result",
    "RoundOptions",
    "Server",
    "SqliteLedger",
    "Stage",
]
