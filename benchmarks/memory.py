"""The estimate that refuses a comparison which would not fit into memory."""

from __future__ import annotations

from pathlib import Path

from benchmarks.setting import Setting
from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.groups import LARGEST_SINGLE_GROUP

_MEMINFO = Path("/proc/meminfo")
_BASE = 120 << 20
"""An interpreter with NumPy, and what else a process needs."""
_PAIR = 1_500
"""Bytes that a user's side of a pair costs a simulated cohort: secrets of three rounds and sealed shares."""
_FLOWER_PAIR = 4_000


def available() -> int | None:
    """Return the bytes that can be had without swapping, or None where the system does not say."""
    lines = _MEMINFO.read_text().splitlines() if _MEMINFO.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def estimate(system: str, setting: Setting) -> int:
    """Return an upper estimate of one system's peak memory in bytes."""
    n, d = setting.clients, setting.dim
    if system == "flower_secagg_plus":
        # All N masked vectors (int64) are held at once, each as message bytes and as the array read from them.
        return _BASE * 2 + 4 * d + 20 * n * d + _FLOWER_PAIR * n * n
    # Noise, the checking sum and the server's sums (int64), one upload in a few copies, and the result.
    partners = min(n, LARGEST_SINGLE_GROUP) if system == "sliced" else n
    return _BASE + 80 * d + _PAIR * n * partners


def refuse_what_does_not_fit(systems: list[str], setting: Setting) -> None:
    """Raise `InvalidInput` with the estimate if a system needs more memory than there is."""
    free = available()
    if free is None:
        return
    system, needed = max(((system, estimate(system, setting)) for system in systems), key=lambda pair: pair[1])
    if needed > free:
        raise InvalidInput(
            "dim",
            f"of {setting.dim:,} with {setting.clients:,} clients needs about {needed / 1e9:,.1f} GB for {system}, and "
            f"{free / 1e9:,.1f} GB are free: lower --dim or --clients, or leave it out with --systems",
        )
