"""The peer is really Flower, and really computes the mean of the survivors."""

from typing import Any

import numpy as np
import pytest

from benchmarks import peer_flower
from benchmarks.cohort import CLIP, Cohort

pytest.importorskip("flwr")

STEP = 2 * CLIP / 2**22
"""Flower's quantisation step at its default range."""


@pytest.fixture(scope="module")
def cohort() -> Any:
    return Cohort(clients=6, dim=500, alpha=1.0, dropout=0.2, modulus_bits=32, seed=5)


@pytest.fixture(scope="module")
def outcome(cohort: Any) -> Any:
    return peer_flower.run(cohort)


def test_the_mean_is_right_to_within_its_quantisation(cohort: Any, outcome: Any) -> None:
    measurement, mean = outcome
    assert cohort.dropped
    np.testing.assert_allclose(mean, cohort.mean(), rtol=0, atol=STEP)
    assert measurement.exact


def test_the_mean_is_not_that_of_all_clients(cohort: Any, outcome: Any) -> None:
    everybody = np.mean([cohort.update(user) for user in range(cohort.clients)], axis=0)
    assert np.abs(outcome[1] - everybody).max() > 100 * STEP


def test_an_upload_carries_eight_bytes_per_coordinate(cohort: Any, outcome: Any) -> None:
    assert outcome[0].sent_bytes > 8 * cohort.dim


def test_the_model_does_not_count_as_received(cohort: Any, outcome: Any) -> None:
    bigger = Cohort(cohort.clients, 10 * cohort.dim, 1.0, cohort.dropout, 32, seed=5)
    # A few bytes of lengths and time stamps are all that may differ.
    assert peer_flower.measure(bigger).received_bytes == pytest.approx(outcome[0].received_bytes, abs=40)


def test_a_wrong_mean_is_not_called_exact(cohort: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cohort, "mean", lambda self: np.zeros(self.dim))
    assert not peer_flower.measure(cohort).exact
