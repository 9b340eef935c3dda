"""Local training: what is asked for, and which samples each step sees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import LocalTraining
from sparsesecagg.lab.learning.models.base import Evaluation, batches


def test_the_defaults_are_those_of_the_paper() -> None:
    """5 epochs, batches of 28, momentum 0.5, learning rate 0.01."""
    assert LocalTraining() == LocalTraining(epochs=5, batch=28, lr=0.01, momentum=0.5)


@given(st.integers(1, 100), st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**63))
def test_every_epoch_sees_every_sample_once(samples, epochs, batch, seed) -> None:
    """In an order of its own; no batch is too large but for one sample left over."""
    steps = batches(samples, LocalTraining(epochs=epochs, batch=batch), seed)
    seen = np.concatenate(steps).reshape(epochs, samples)
    assert (np.sort(seen, axis=1) == np.arange(samples)).all()
    assert max(map(len, steps)) <= batch + (batch > 1)


def test_a_single_sample_left_over_joins_the_batch_before() -> None:
    """Batch normalisation can't use a batch of one."""
    assert [len(step) for step in batches(9, LocalTraining(epochs=1, batch=4), 0)] == [4, 5]
    assert [len(step) for step in batches(3, LocalTraining(epochs=1, batch=1), 0)] == [1, 1, 1]


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch": 0}, {"lr": 0.0}, {"lr": float("inf")}, {"momentum": 1.0}, {"momentum": -0.1}]
)
def test_settings_that_can_not_train_are_refused_by_name(wrong) -> None:
    """The error names the option."""
    with pytest.raises(InvalidInput) as caught:
        LocalTraining(**wrong)
    assert caught.value.option == next(iter(wrong))


def test_evaluations_of_parts_add_up() -> None:
    """So that a test set can be split among workers."""
    assert Evaluation(1, 0.5, 2) + Evaluation(3, 1.5, 4) == Evaluation(4, 2.0, 6)
