"""Sparse secure aggregation for federated learning: the server learns the sum, and users send a fraction of it.

Three heights:

- `secure_sum(updates, alpha=0.2)`: a first try, everything in one process;
- `Client` and `Server`: state machines without I/O, for your own transport (`sparsesecagg.protocol`);
- `sparsesecagg.flower`: for Flower apps, one line per side.

The rooms, each importing only those before it: field, crypto, quantize, patterns, protocol, privacy, learning,
engines, report, cli.
"""

from sparsesecagg.protocol import Client, Policy, Result, RoundParameters, Server, Stage, run_round
from sparsesecagg.protocol.secure_sum import secure_sum

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Policy",
    "Result",
    "RoundParameters",
    "Server",
    "Stage",
    "run_round",
    "secure_sum",
]
