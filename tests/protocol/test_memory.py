"""What a client needs for UPLOAD follows what it sends, not the size of the model. Benchmarks check it at 10^8."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from protocol.rounds import Run, small


def peak_and_sent(**settings: Any) -> tuple[int, int]:
    """Return the peak of one client's UPLOAD in bytes, above the update itself, and the size of its message."""
    run = Run(small(clients=30, **settings)).begin()
    tracemalloc.start()
    try:
        message = run.clients[3].upload(run.inbox[3], run.updates[3])
        return tracemalloc.get_traced_memory()[1], len(message)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["sliced", "pairwise"])
@pytest.mark.parametrize("modulus_bits", [8, 32])
def test_memory_follows_what_is_sent(pattern: str, modulus_bits: int) -> None:
    """Five times the model at a fifth of the fraction: as many values, and locations that are a little longer."""
    settings: dict[str, Any] = {"pattern": pattern, "modulus_bits": modulus_bits}
    peak, sent = peak_and_sent(**settings, dim=80_000, alpha=0.5)
    sparse_peak, sparse_sent = peak_and_sent(**settings, dim=400_000, alpha=0.1)
    assert sparse_sent < 2.1 * sent
    assert sparse_peak < 1.6 * peak
