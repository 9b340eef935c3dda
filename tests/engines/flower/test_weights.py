"""Weights are rounded at random once, without bias, onto a coarse public grid."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from engines.local_grid import LocalGrid, model, training_app, values
from sparsesecagg.engines.flower.weights import FILE, coin, rounded
from sparsesecagg.errors import LedgerUnusable
from sparsesecagg.flower import SecAgg

WEIGHTS = st.integers(0, 1 << 20)
LIMITS = st.integers(1, 1 << 20)
COINS = st.integers(0, (1 << 64) - 1)


@given(WEIGHTS, LIMITS, COINS)
def test_a_rounded_weight_is_a_power_of_two_or_the_limit_and_within_a_factor_of_two(
    weight: int, limit: int, own: int
) -> None:
    point = rounded(weight, limit, own)
    assert 1 <= point <= limit
    assert point == limit or point & (point - 1) == 0
    if 1 <= weight <= limit:
        assert weight / 2 < point < 2 * weight or point == weight


@given(WEIGHTS.filter(bool), LIMITS)
def test_the_mean_over_all_coins_is_the_weight(weight: int, limit: int) -> None:
    """Exactly: of 2^64 coins so many go up as make it right. Bisect for the first that does not."""
    low, high = 0, 1 << 64
    top = rounded(weight, limit, 0)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if rounded(weight, limit, middle) == top else (low, middle)
    bottom = rounded(weight, limit, (1 << 64) - 1)
    mean = (top * low + bottom * ((1 << 64) - low)) / (1 << 64)
    assert mean == pytest.approx(min(weight, limit), rel=1e-12)


def test_a_node_has_one_coin_for_good_and_others_have_others(tmp_path: Path) -> None:
    coins = [coin(tmp_path, str(node)) for node in range(50)]
    assert coins == [coin(tmp_path, str(node)) for node in range(50)]
    assert len(set(coins)) == 50
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_damaged_coin_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"short")
    with pytest.raises(LedgerUnusable, match=FILE):
        coin(tmp_path, "0")


def test_rounds_and_runs_of_a_federation_have_the_same_rounded_weights() -> None:
    """Fresh rounding would average out, and a server could start as many runs as it likes."""
    app = training_app(lambda p, a, r: a, weight=lambda p: 11 + 7 * p)
    totals: list[Any] = []
    for _ in range(2):
        seen: list[Any] = []

        def note(contents: Any, key: str, seen: list[Any] = seen) -> Any:
            return seen.append(contents[0]["metrics"][key])

        inner = FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=note)
        strategy = SecAgg(inner)
        strategy.start(grid=LocalGrid(app, 6), initial_arrays=model(w=np.zeros(9, np.float32)), num_rounds=2)
        totals += seen
    assert len(totals) == 4
    assert len(set(totals)) == 1


def test_uniform_weights_weigh_all_alike() -> None:
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(p)}, weight=lambda p: 4**p)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), weights="uniform", modulus_bits=32, clip=4.0)
    initial = model(w=np.zeros(8, np.float32))
    result = strategy.start(grid=LocalGrid(app, 4), initial_arrays=initial, num_rounds=1)
    np.testing.assert_allclose(values(result.arrays)["w"], 1.5, atol=1e-5)
