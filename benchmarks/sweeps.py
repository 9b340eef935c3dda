"""The sweeps: which settings change, which stay, and what the paper says about the growth.

The paper states O(N + d) for a user and O(d·N²) for the server (its theorem on computational overhead), the same as
for SecAgg. A user of SecAgg expands N − 1 masks of d words, so O(N·d) is what an implementation really does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Parameters

WORD_BITS = {"secagg": 32, "pairwise": 16, "committee": 16}
"""SecAgg's words are the published ones."""
COMMITTEE_SIZE = 38
"""The planner's committee for 1,000 users, θ = γ = 0.1."""
POD_SIZE = 2 * COMMITTEE_SIZE


@dataclass(frozen=True)
class Sweep:
    """One cost against one setting, for several systems."""

    title: str
    varied: str
    quantity: str
    paper: float | None
    """The exponent of the paper's O(·) in the varied setting, where it has one."""
    job: str
    values: tuple[float, ...]
    more: tuple[float, ...]
    """Values that take long: only with --full."""
    systems: tuple[str, ...]
    settings: Callable[[str, float], dict[str, Any]]

    def points(self, full: bool) -> Iterator[tuple[str, float, dict[str, Any]]]:
        """Yield system, value and the job's arguments, without those that make no valid round."""
        for system in self.systems:
            for value in self.values + (self.more if full else ()):
                arguments = self.settings(system, value)
                if self.job == "system" or _valid(arguments):
                    yield system, value, arguments


def _valid(arguments: dict[str, Any]) -> bool:
    try:
        Parameters.create(**{key: value for key, value in arguments.items() if key != "repeats"})
    except InvalidInput:
        return False
    return True


def _upload(system: str, **settings: Any) -> dict[str, Any]:
    """Return the arguments of one client's UPLOAD."""
    pattern = "full" if system == "secagg" else system
    if pattern == "full":
        settings["alpha"] = None
    return {"pattern": pattern, "modulus_bits": WORD_BITS[system], **settings}


def _round(system: str, **cohort: Any) -> dict[str, Any]:
    """Return the arguments of a whole round."""
    return {"system": system, "cohort": {"modulus_bits": WORD_BITS[system], "seed": 0, **cohort}}


_ALL = ("secagg", "pairwise", "committee")

SWEEPS: dict[str, Sweep] = {
    "upload_dim": Sweep(
        "One client's UPLOAD, 100 clients, α = 0.1",
        "dim",
        "seconds",
        1.0,
        "upload",
        (1e5, 3e5, 1e6, 3e6, 1e7),
        (3e7, 1e8),
        _ALL,
        lambda system, d: _upload(
            system, clients=100, dim=int(d), alpha=0.1, repeats=3 if d < 1e7 or system != "secagg" else 1
        ),
    ),
    "upload_clients": Sweep(
        "One client's UPLOAD, 100,000 coordinates, α = 0.1",
        "clients",
        "seconds",
        1.0,
        "upload",
        (25, 50, 100, 200, 500, 1000),
        (2000,),
        _ALL,
        lambda system, n: _upload(system, clients=int(n), dim=100_000, alpha=0.1),
    ),
    "upload_fixed_committee": Sweep(
        f"One client's UPLOAD, 1,000,000 coordinates, committees of {COMMITTEE_SIZE}, pods of {POD_SIZE}",
        "clients",
        "seconds",
        None,
        "upload",
        (100, 200, 500, 1000),
        (2000,),
        ("committee",),
        lambda system, n: _upload(
            system,
            clients=int(n),
            dim=1_000_000,
            alpha=min(1.0, COMMITTEE_SIZE / n),
            committee_size=COMMITTEE_SIZE,
            pod_size=POD_SIZE,
            repeats=5,
        ),
    ),
    "upload_fixed_share": Sweep(
        f"One client's UPLOAD of 100,000 coordinates, committees of {COMMITTEE_SIZE}, pods of {POD_SIZE}",
        "clients",
        "seconds",
        None,
        "upload",
        (100, 200, 500, 1000),
        (2000,),
        ("committee",),
        lambda system, n: _upload(
            system,
            clients=int(n),
            dim=int(100_000 * max(1.0, n / COMMITTEE_SIZE)),
            alpha=min(1.0, COMMITTEE_SIZE / n),
            committee_size=COMMITTEE_SIZE,
            pod_size=POD_SIZE,
            repeats=5,
        ),
    ),
    "upload_alpha": Sweep(
        "One client's UPLOAD, 100 clients, 1,000,000 coordinates",
        "alpha",
        "seconds",
        None,
        "upload",
        (0.05, 0.1, 0.2, 0.5, 1.0),
        (0.03,),
        ("pairwise", "committee"),
        lambda system, alpha: _upload(system, clients=100, dim=1_000_000, alpha=alpha),
    ),
    "server_clients": Sweep(
        "The server's round, 100,000 coordinates, α = 0.2, θ = 0.1",
        "clients",
        "seconds",
        2.0,
        "system",
        (25, 50, 100),
        (200, 400),
        _ALL,
        lambda system, n: _round(system, clients=int(n), dim=100_000, alpha=0.2, dropout=0.1),
    ),
    "server_dim": Sweep(
        "The server's round, 50 clients, α = 0.1, θ = 0.1",
        "dim",
        "seconds",
        1.0,
        "system",
        (3e4, 1e5, 3e5, 1e6),
        (3e6,),
        _ALL,
        lambda system, d: _round(system, clients=50, dim=int(d), alpha=0.1, dropout=0.1),
    ),
    "server_dropout": Sweep(
        "The server's round, 50 clients, 300,000 coordinates, α = 0.2",
        "dropout",
        "seconds",
        None,
        "system",
        (0.02, 0.1, 0.2, 0.3),
        (0.4,),
        _ALL,
        lambda system, theta: _round(system, clients=50, dim=300_000, alpha=0.2, dropout=theta),
    ),
}
