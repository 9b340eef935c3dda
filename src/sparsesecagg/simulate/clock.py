"""Computing time by stage: the mean of the clients, the total of the server."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparsesecagg.protocol.stages import Stage


class Clock:
    """Times the two sides apart, and leaves out what the simulation does for itself."""

    def __init__(self) -> None:
        self._client: dict[str, list[float]] = defaultdict(list)
        self._server: dict[str, float] = defaultdict(float)
        self._apart = 0.0

    @contextmanager
    def client(self, stage: Stage) -> Iterator[None]:
        """Time a client. A stage inside another one is not counted twice."""
        outside, self._apart, start = self._apart, 0.0, time.perf_counter()
        yield
        taken = time.perf_counter() - start
        self._client[stage.name].append(taken - self._apart)
        self._apart = outside + taken

    @contextmanager
    def server(self, stage: Stage) -> Iterator[None]:
        """Time the server."""
        start = time.perf_counter()
        yield
        self._server[stage.name] += time.perf_counter() - start

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Leave out what the simulation does for itself."""
        start = time.perf_counter()
        yield
        self._apart += time.perf_counter() - start

    def pausing(self, act: Callable[..., None]) -> Callable[..., None]:
        """Return a function that does the same off the clock."""

        def paused(*arguments: Any) -> None:
            with self.apart():
                act(*arguments)

        return paused

    def client_means(self, stages: tuple[Stage, ...]) -> dict[str, float]:
        """Return the mean of the clients that took part, by stage, and the sum of these."""
        means = {stage.name: float(np.mean(self._client.get(stage.name) or [0.0])) for stage in stages}
        return {**means, "total": sum(means.values())}

    def server_totals(self, stages: tuple[Stage, ...]) -> dict[str, float]:
        """Return the server's time by stage, and its sum."""
        totals = {stage.name: self._server[stage.name] for stage in stages}
        return {**totals, "total": sum(totals.values())}
