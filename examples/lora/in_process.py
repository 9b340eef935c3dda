"""Run the app in one process, without Ray: ten nodes, the app's own settings.

python examples/lora/in_process.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict

from sparsesecagg.lab.attacks.local_grid import RUN, SERVER, LocalGrid

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def run(nodes: int = 10, **changes: Any) -> None:
    """Run the ServerApp with its ClientApp."""
    from lora_app.client_app import app as client
    from lora_app.server_app import app as server

    settings = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    settings |= changes
    grid = LocalGrid(client, nodes, run_config=settings)
    server(grid, Context(run_id=RUN, node_id=SERVER, node_config={}, state=RecordDict(), run_config=settings))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("SPARSESECAGG_LEDGER", folder)
        run()
