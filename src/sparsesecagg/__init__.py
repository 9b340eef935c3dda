"""Sparse secure aggregation for federated learning: the server learns the sum, and users send a fraction of it.

Three heights:

- `secure_sum(updates, alpha=0.2)`: a first try, everything in one process;
- `Client` and `Server`: state machines without I/O, for your own transport (`sparsesecagg.protocol`);
- `sparsesecagg.flower`: for Flower apps, one line per side.

The rooms, each importing only those before it: field, crypto, quantize, patterns, protocol, privacy, learning,
engines, report, cli.
"""

from sparsesecagg.engines.in_process import secure_sum
from sparsesecagg.protocol import Client, Parameters, Policy, Result, Server, Stage

__version__ = "0.1.0"

__all__ = ["Client", "Parameters", "Policy", "Result", "Server", "Stage", "secure_sum"]
