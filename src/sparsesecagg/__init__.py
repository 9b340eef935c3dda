"""Sparse secure aggregation for federated learning: the server learns the sum, and users send a fraction of it.

Three levels of API:

- `secure_sum(updates, options=RoundOptions(alpha=0.1))`: a first try, everything in one process;
- `Client` and `Server`: state machines without I/O, for your own transport (`sparsesecagg.protocol`);
- `sparsesecagg.flower`: for Flower apps, four lines in all.

Package layout, each importing only those before it. The product: errors and files, field, crypto, rounding, ranges,
privacy, patterns, protocol, simulate, downlink, planning, flower, cli. On top of it the lab (`sparsesecagg.lab`):
learning, audit, attacks, report, and their commands.
"""

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.errors import InvalidInput, ProtocolError, SparseSecAggError
from sparsesecagg.planning.planner import Goal, Plan, plan_round
from sparsesecagg.protocol import (
    Client,
    MemoryLedger,
    Parameters,
    Policy,
    Result,
    RoundOptions,
    Server,
    SqliteLedger,
    Stage,
)
from sparsesecagg.simulate import Cohort, InProcessRun, Outcome, run_round, secure_sum

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Cohort",
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
    "RoundOptions",
    "Server",
    "SparseSecAggError",
    "SqliteLedger",
    "Stage",
    "plan_round",
    "run_round",
    "secure_sum",
]
