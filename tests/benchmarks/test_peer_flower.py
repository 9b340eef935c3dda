"""The peer is really Flower, and really computes the mean of the survivors."""

from typing import Any

import numpy as np
import pytest

from benchmarks import peer_flower
from benchmarks.setting import CLIP, Setting

pytest.importorskip("flwr")

STEP = 2 * CLIP / 2**22
"""Flower's quantisation step at its default range."""


@pytest.fixture(scope="module")
def setting() -> Any:
    return Setting(clients=6, dim=500, alpha=1.0, dropout=0.2, modulus_bits=32, seed=5)


@pytest.fixture(scope="module")
def outcome(setting: Any) -> Any:
    return peer_flower.run(setting)


def test_the_mean_is_right_to_within_its_quantisation(setting: Any, outcome: Any) -> None:
    measurement, mean = outcome
    assert setting.dropped
    np.testing.assert_allclose(mean, setting.mean(), rtol=0, atol=STEP)
    assert measurement.exact


def test_the_mean_is_not_that_of_all_clients(setting: Any, outcome: Any) -> None:
    everybody = np.mean([setting.update(user) for user in range(setting.clients)], axis=0)
    assert np.abs(outcome[1] - everybody).max() > 100 * STEP


def test_an_upload_carries_eight_bytes_per_coordinate(setting: Any, outcome: Any) -> None:
    assert outcome[0].sent_bytes > 8 * setting.dim


def test_the_model_does_not_count_as_received(setting: Any, outcome: Any) -> None:
    bigger = Setting(setting.clients, 10 * setting.dim, 1.0, setting.dropout, 32, seed=5)
    # A few bytes of lengths and time stamps are all that may differ.
    assert peer_flower.measure(bigger).received_bytes == pytest.approx(outcome[0].received_bytes, abs=40)


def test_a_wrong_mean_is_not_called_exact(setting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setting, "mean", lambda self: np.zeros(self.dim))
    assert not peer_flower.measure(setting).exact
