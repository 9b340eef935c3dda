"""Sparse secure aggregation for federated learning: the server learns the sum, and users send a fraction of it.

Three levels of API:

- `secure_sum(updates, alpha=0.2)`: a first try, everything in one process;
- `Client` and `Server`: state machines without I/O, for your own transport (`sparsesecagg.protocol`);
- `sparsesecagg.flower`: for Flower apps, one line per side.

Package layout, each importing only those before it: errors and files, field, crypto, quantize, downlink, patterns,
protocol, engines.in_process, privacy, learning, engines, attacks, report, cli. `flower` is the door to engines.flower.
"""

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.simulate import InProcessRun, Outcome, run_round, secure_sum
from sparsesecagg.errors import InvalidInput, ProtocolError, SparseSecAggError
from sparsesecagg.planning.plan import Goal, Plan
from sparsesecagg.planning.planner import plan_round
from sparsesecagg.protocol import (
    Client,
    MemoryLedger,
    Parameters,
    Policy,
    Result,
    Server,
    SqliteLedger,
    Stage,
    session_of,
)

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Goal",
    "Identity",
    "InProcessRun",
    "InvalidInput",
    "MemoryLedger",
    "Outcome",
    "Parameters",
    "Plan",
    "Policy",
    "ProtocolError",
    "Result",
    "Roster",
    "Server",
    "SparseSecAggError",
    "SqliteLedger",
    "Stage",
    "plan_round",
    "run_round",
    "secure_sum",
    "session_of",
]
