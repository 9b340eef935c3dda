"""The line of a round."""

import pytest

from sparsesecagg.lab.learning.metrics import Network


def test_transfer_is_bytes_at_the_bandwidth_and_two_latencies_per_exchange() -> None:
    """1.25 MB at 100 Mbit/s take 0.1 s; four exchanges at 20 ms another 0.16 s."""
    assert Network(100, 20).transfer_seconds(1_000_000, 250_000, 4) == pytest.approx(0.1 + 0.16)
