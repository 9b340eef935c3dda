"""Every option of a run, checked."""

import json

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import TrainingConfig


def test_each_data_set_has_its_own_defaults() -> None:
    """The paper's for its data sets, quicker ones for the embedded digits; all can be changed."""
    mnist, digits = TrainingConfig.create("mnist"), TrainingConfig.create("digits", lr=0.3)
    assert (mnist.model, mnist.epochs, mnist.batch, mnist.lr, mnist.momentum) == ("small-cnn", 5, 28, 0.01, 0.5)
    assert (digits.model, digits.batch, digits.lr) == ("mlp", 10, 0.3)


def test_none_stands_for_the_default() -> None:
    """So that the command line can pass on what was not given."""
    assert TrainingConfig.create("digits", alpha=None) == TrainingConfig.create("digits")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clients", 2),
        ("rounds", 0),
        ("hidden", 0),
        ("seed", -1),
        ("alpha", 0.0),
        ("alpha", 1.5),
        ("alpha", float("nan")),
        ("dropout", 0.5),
        ("dropout", -0.1),
        ("colluding", 0.5),
        ("target_accuracy", 95.0),
        ("bandwidth_mbit", 0.0),
        ("bandwidth_mbit", 1e-300),
        ("latency_ms", -1.0),
        ("latency_ms", 1e308),
        ("first_clip", 0.0),
        ("first_clip", 1e300),
        ("samples", 49),
        ("weights", "votes"),
        ("gain", 0.5),
        ("gain", "much"),
        ("normalisation", "none"),
        ("drop_at", "LUNCH"),
        ("authenticated", "yes"),
        ("keys_arrive", 1),
        ("epochs", 0),
        ("dp_epsilon", 0.0),
        ("dp_delta", 1.0),
        ("dp_clip", -1.0),
        ("dp_clip", 1e31),
        ("dp_clip", 1e-31),
    ],
)
def test_values_out_of_range_are_refused_by_name(name: str, value) -> None:
    """The error names the option and says what is allowed."""
    with pytest.raises(InvalidInput) as caught:
        TrainingConfig.create("digits", **{name: value})
    assert caught.value.option == name and ("must" in caught.value.problem)


def test_unknown_options_list_the_known_ones() -> None:
    """A typing error in a script is answered with the choice."""
    with pytest.raises(InvalidInput, match="alpha, "):
        TrainingConfig.create("digits", alfa=0.1)


def test_several_stages_may_lose_users() -> None:
    """Names separated by commas, in any case; ANY is all four."""
    config = TrainingConfig.create("digits", drop_at="share-keys, unmask")
    assert config.drop_stages == ("SHARE_KEYS", "UNMASK")
    assert len(TrainingConfig.create("digits", drop_at="any").drop_stages) == 4


def test_numbers_of_numpy_can_be_written_down() -> None:
    """A sweep over an array must not fail when the run folder is there."""
    made = TrainingConfig.create(clients=np.int64(7), seed=np.int64(3), lr=np.float32(2))
    assert json.dumps(made.to_json()) == json.dumps(TrainingConfig.create(clients=7, seed=3, lr=2.0).to_json())


def test_json_and_back() -> None:
    """What is stored is what is read, and other keys do no harm."""
    config = TrainingConfig.create("mnist", alpha=0.1, seed=7, group_size=10, gain=2.5)
    assert config.to_json()["alpha"] == config.options.alpha == 0.1  # Side by side, as on the command line.
    assert TrainingConfig.from_json(config.to_json() | {"version": "x"}) == config
