"""Simulated dropouts and a simulated network."""

import pytest

from sparsesecagg.learning.faults import Network, draw_dropouts
from sparsesecagg.protocol import STAGES, Stage


def test_users_drop_out_independently_at_the_rate_asked_for():
    """The number varies from round to round and is right on average."""
    counts = [len(draw_dropouts(100, 0.3, [Stage.UPLOAD], 0, number)) for number in range(200)]
    assert sum(counts) / 200 == pytest.approx(30, abs=1.5) and len(set(counts)) > 10


def test_rounds_and_seeds_have_their_own_dropouts():
    """And the same ones every time."""
    drawn = [draw_dropouts(50, 0.3, STAGES, seed, number) for seed, number in ((0, 1), (0, 1), (0, 2), (1, 1))]
    assert drawn[0] == drawn[1] and drawn[0] != drawn[2] and drawn[0] != drawn[3]


def test_dropouts_fall_on_the_stages_asked_for():
    """All of them, and no other."""
    assert set(draw_dropouts(200, 0.5, [Stage.SHARE_KEYS, Stage.UNMASK], 0, 1).values()) == {
        Stage.SHARE_KEYS,
        Stage.UNMASK,
    }
    assert draw_dropouts(200, 0.0, STAGES, 0, 1) == {}


def test_transfer_is_bytes_at_the_bandwidth_and_two_latencies_per_exchange():
    """1.25 MB at 100 Mbit/s take 0.1 s; four exchanges at 20 ms another 0.16 s."""
    assert Network(100, 20).transfer_seconds(1_000_000, 250_000, 4) == pytest.approx(0.1 + 0.16)
