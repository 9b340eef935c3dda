"""Data sets from users' own arrays."""

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import Dataset

X, Y = np.arange(40.0).reshape(20, 2), np.arange(20) % 4


def test_without_a_test_part_one_is_split_off() -> None:
    """Every sample lands on exactly one side, with its own label."""
    made = Dataset.from_arrays(X, Y, test_fraction=0.25, seed=3)
    assert (len(made.train_y), len(made.test_y)) == (15, 5)
    rows = np.concatenate([made.train_x, made.test_x])
    labels = np.concatenate([made.train_y, made.test_y])
    order = np.argsort(rows[:, 0])
    assert np.array_equal(rows[order], X) and np.array_equal(labels[order], Y)
    assert made.classes == ("0", "1", "2", "3")


def test_the_split_depends_on_the_seed_only() -> None:
    """Same seed, same split."""
    first, same, other = (Dataset.from_arrays(X, Y, seed=seed) for seed in (1, 1, 2))
    assert first.digest == same.digest != other.digest


def test_a_given_test_part_is_kept() -> None:
    """Own test samples are not shuffled."""
    made = Dataset.from_arrays(X, Y, X[:3], Y[:3], classes=["a", "b", "c", "d"])
    assert np.array_equal(made.test_x, X[:3].astype(np.float32)) and made.classes[3] == "d"


@pytest.mark.parametrize(
    ("arrays", "options", "named"),
    [
        ((X, Y[:5]), {}, "train_x"),
        ((X, Y - 1), {}, "train_y"),
        ((X, Y + 0.5), {}, "train_y"),
        ((X * np.nan, Y), {}, "train_x"),
        ((X, Y, X), {}, "test_x"),
        ((X, Y, X[:, :1], Y), {}, "test_x"),
        ((X, Y), {"classes": ["only one"]}, "classes"),
        ((X, Y), {"test_fraction": 0.0}, "test_fraction"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(arrays, options, named: str) -> None:
    """The error names the argument."""
    with pytest.raises(InvalidInput) as caught:
        Dataset.from_arrays(*arrays, **options)
    assert caught.value.option == named


def test_fewer_samples_on_request() -> None:
    """A smaller training part is a part of the whole one; too many are refused."""
    made = Dataset.from_arrays(X, Y, X, Y)
    small = made.with_samples(7, seed=0)
    assert len(small.train_y) == 7 and set(small.train_x[:, 0]) <= set(made.train_x[:, 0])
    with pytest.raises(InvalidInput, match="1 to 20"):
        made.with_samples(21, seed=0)
