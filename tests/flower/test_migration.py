"""The page on moving from SecAgg+: the app that it ends with runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from flower.local_grid import RUN, SERVER, LocalGrid
from snippets import snippets_of


def test_the_app_after_the_move_runs(capsys: Any) -> None:
    _, client, _, server = [each.code for each in snippets_of("docs/migration.md") if each.kind == "python"]
    trained: list[int] = []

    def fit(weights: list[np.ndarray], partition: int) -> tuple[list[np.ndarray], int]:
        trained.append(partition)
        return [weight + 0.1 for weight in weights], 10

    node: dict[str, Any] = {"fit": fit}
    exec(client, node)  # noqa: S102
    end: dict[str, Any] = {"new_model": lambda: [np.zeros((4, 5), np.float32)]}
    exec(server, end)  # noqa: S102
    grid = LocalGrid(node["app"], 5)
    end["app"](grid, Context(run_id=RUN, node_id=SERVER, node_config={}, state=RecordDict(), run_config={}))
    assert sorted(trained) == sorted(3 * list(range(5)))
