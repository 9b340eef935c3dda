"""The protocol: secure aggregation as two state machines without I/O.

parameters      everything public that stays the same in a run
stages          ADVERTISE_KEYS once, then SHARE_KEYS ahead of each round, UPLOAD → UNMASK in it
messages        what travels, and its bytes
locations       coded coordinates
draws           the groups, as nobody could choose them
draw            how a jury draws; draw_messages, juror, draw_server: what travels, and both sides
epoch           groups and sealing keys of a pod
package         what a user deals ahead of a round
order           what a round is about, and its digest
acceptance      whether a client takes part in an epoch and in a round
tags, release   who has shown which order, and which shares may be released for it
history         the survivors that were declared
masking         adding masks
work            what a committee does in a round; sliced, drawn: the two kinds; works: which pattern does which
policy          what a client demands, whatever the server says
ledger          what a client has answered, written down; sqlite_ledger: in a file that outlives the process
journal         a client's state with its ledger: written down before an answer leaves
client          one user's side: what it accepts, and when
member          what it computes and sends in a round
client_state    what it remembers; chains: the secrets of its pairs; arguments: what its owner gives it
relay           shares and tags, sorted by receiver
pod             what the server keeps of a pod between rounds
pod_round       the server's side of one pod in one round
opening         restoring secrets from shares; threads: several at a time
server          the server's side of a run; server_epoch: keys and groups; server_round: one round of all pods
server_state    what it remembers
result          what a round leaves behind
"""

from sparsesecagg.protocol.client import Client
from sparsesecagg.protocol.draws import session_of
from sparsesecagg.protocol.ledger import Ledger, MemoryLedger
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.result import Result
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
    "Server",
    "SqliteLedger",
    "Stage",
    "session_of",
]
