"""Data sets, and how they are dealt out to users."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import Dataset
from sparsesecagg.lab.learning.data import PARTITIONS, make_partition

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


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"train_y": Y - 1}, "train_y"),
        ({"train_y": Y * 1.0}, "train_y"),
        ({"train_y": Y.astype(str)}, "train_y"),
        ({"test_y": Y + 1}, "classes"),
        ({"train_x": X[:, 0]}, "train_x"),
        ({"train_y": Y[:5]}, "train_x"),
        ({"test_x": X * np.nan}, "test_x"),
        ({"test_x": X[:, :1]}, "test_x"),
        ({"name": "../x/y"}, "name"),
        ({"name": ".."}, "name"),
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
    ],
)
def test_the_constructor_checks_as_well(changed, named: str) -> None:
    """Or training blames its learning rate, and a run folder lands outside of `runs`."""
    given: dict[str, Any] = {
        "name": "own",
        "train_x": X,
        "train_y": Y,
        "test_x": X,
        "test_y": Y,
        "classes": tuple("abcd"),
    }
    assert Dataset(**given).train_x.dtype == np.float32
    with pytest.raises(InvalidInput) as caught:
        Dataset(**given | changed)
    assert caught.value.option == named


def test_fewer_samples_on_request() -> None:
    """A smaller training part is a part of the whole one; too many are refused."""
    made = Dataset.from_arrays(X, Y, X, Y)
    small = made.with_samples(7, seed=0)
    assert len(small.train_y) == 7 and set(small.train_x[:, 0]) <= set(made.train_x[:, 0])
    with pytest.raises(InvalidInput, match="1 to 20"):
        made.with_samples(21, seed=0)


def dataset(samples: int, classes: int = 5) -> Dataset:
    """Labels in turn, so that all classes are about equally large."""
    return Dataset.from_arrays(np.zeros((samples, 1)), np.arange(samples) % classes, np.zeros((1, 1)), [0])


@given(st.sampled_from(PARTITIONS), st.integers(5, 20), st.integers(60, 200), st.integers(0, 2**32))
def test_every_sample_is_dealt_to_one_user(name, clients, samples, seed) -> None:
    """Nothing is lost, nothing dealt twice, nobody idle, and the counts are true."""
    data = dataset(samples)
    made = make_partition(data, name, clients, seed, shards=clients * 2, concentration=0.3)
    assert np.array_equal(np.sort(np.concatenate(made.indices)), np.arange(samples))
    assert made.sizes.min() >= 1
    for own, counts in zip(made.indices, made.counts, strict=True):
        assert np.array_equal(np.bincount(data.train_y[own], minlength=5), counts)


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_seed_decides(name) -> None:
    """Same seed, same partition; another seed, another one."""
    one, same, other = (make_partition(dataset(300), name, 10, seed, shards=30) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one.indices, same.indices, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one.indices, other.indices, strict=True))


def test_iid_parts_are_of_one_size() -> None:
    """Sizes differ by one at most."""
    assert set(make_partition(dataset(103), "iid", 10, 0).sizes.tolist()) == {10, 11}


def test_shards_hold_few_classes() -> None:
    """As in the paper: 300 shards of at most two classes each, dealt evenly."""
    made = make_partition(dataset(6000, 10), "shards", 100, 0)
    assert set(made.sizes.tolist()) == {60}
    assert ((made.counts > 0).sum(axis=1) <= 6).all() and ((made.counts > 0).sum(axis=1) < 10).all()


def test_small_concentrations_are_uneven() -> None:
    """Dirichlet with 100 is nearly even, with 0.05 far from it."""
    uneven, even = (make_partition(dataset(2000), "dirichlet", 10, 0, concentration=c).counts for c in (0.05, 100))
    assert uneven.std() > 4 * even.std()


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("iid", {"clients": 101}, "clients"),
        ("shards", {"shards": 101}, "shards"),
        ("shards", {"shards": 9}, "shards"),
        ("dirichlet", {"concentration": 0.0}, "concentration"),
        ("dirichlet", {"concentration": float("nan")}, "concentration"),
        ("by colour", {}, "partition"),
    ],
)
def test_what_can_not_be_dealt_is_refused_by_name(name: str, options, named: str) -> None:
    """More users or shards than samples, impossible classes, unknown names."""
    chosen = {"clients": 10, "shards": 20} | options
    with pytest.raises(InvalidInput) as caught:
        make_partition(dataset(100), name, chosen.pop("clients"), 0, **chosen)
    assert caught.value.option == named


def test_a_partition_is_written_down(tmp_path: Path) -> None:
    """Indices, user after user, and counts; the JSON is what the report draws."""
    made = make_partition(dataset(50), "dirichlet", 7, 0)
    made.save(tmp_path)
    with np.load(tmp_path / "partition.npz") as stored:
        assert stored["samples"].tolist() == np.concatenate(made.indices).tolist()
        assert stored["sizes"].tolist() == made.sizes.tolist()
    described = json.loads((tmp_path / "partition.json").read_text())
    assert described == {"classes": list(made.classes), "counts": made.counts.tolist()}
