"""How the cost grows with the number of users and with the size of the model.

UPLOAD is timed for one client in a cohort of any size (see lone_client.py), in processor seconds, the least of the
repeats; the server in whole rounds, by the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import child, command
from benchmarks.setting import Setting

_BITS = {"secagg": 32, "sliced": 16}
"""SecAgg's words are the published ones."""
ALPHA = 0.1


@dataclass(frozen=True)
class Sweep:
    """One cost against one setting, for SecAgg and `sliced`."""

    title: str
    varied: str
    values: tuple[int, ...]
    more: tuple[int, ...]
    """Values that take long: only with --full."""
    clients: int = 100
    dim: int = 100_000
    whole_rounds: bool = False
    """The server's cost, not one client's."""

    def points(self, full: bool) -> Iterator[tuple[str, int]]:
        """Yield system and value."""
        for system in _BITS:
            for value in self.values + (self.more if full else ()):
                yield system, value

    def measure(self, system: str, value: int) -> float:
        """Return the seconds at one point."""
        sizes = {"clients": self.clients, "dim": self.dim, self.varied: value}
        if self.whole_rounds:
            setting = Setting(sizes["clients"], sizes["dim"], ALPHA, dropout=0.1, modulus_bits=_BITS[system])
            return float(child.measure_system(system, setting)["server_seconds"]["total"])
        options = {"pattern": "full"} if system == "secagg" else {"pattern": system, "alpha": ALPHA}
        return float(child.measure("upload", **sizes, modulus_bits=_BITS[system], **options)["processor_seconds"])


SWEEPS = {
    "upload_clients": Sweep("One client's UPLOAD, d = 100,000", "clients", (10, 30, 100, 300, 1000), (3000,)),
    "server_clients": Sweep(
        "The server's round, d = 100,000", "clients", (10, 30, 100, 300), (1000,), whole_rounds=True
    ),
    "upload_dim": Sweep("One client's UPLOAD, N = 100", "dim", (10**4, 10**5, 10**6, 10**7), (10**8,)),
    "server_dim": Sweep(
        "The server's round, N = 50", "dim", (10**4, 10**5, 10**6), (10**7,), clients=50, whole_rounds=True
    ),
}


def measure(chosen: Sequence[str] = tuple(SWEEPS), full: bool = False) -> dict[str, Any]:
    """Return the sweeps, each with its points and exponents."""
    plan = [(name, *point) for name in chosen for point in SWEEPS[name].points(full)]
    series: dict[str, dict[str, list[list[float]]]] = {name: {} for name in chosen}
    with command.progress() as bar:
        for name, system, value in bar.track(plan, description="points"):
            series[name].setdefault(system, []).append([float(value), SWEEPS[name].measure(system, value)])
    return {
        "sweeps": {
            name: {
                "title": SWEEPS[name].title,
                "varied": SWEEPS[name].varied,
                "series": {
                    system: {"points": points, "exponent": exponent(points)} for system, points in found.items()
                },
            }
            for name, found in series.items()
        },
        "settings": {"alpha": ALPHA, "modulus_bits": _BITS, "dropout": 0.1},
    }


def exponent(points: Sequence[Sequence[float]]) -> float:
    """Return b of the power law a·x^b that fits best in log-log scale."""
    x, y = np.log(np.array(points, float)).T
    return float(np.polyfit(x, y, 1)[0])
