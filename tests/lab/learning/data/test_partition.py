"""Partitions: every sample to one user, every user at least one sample, the same for the same seed."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import Dataset
from sparsesecagg.lab.learning.data import PARTITIONS, Partition, make_partition


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


def test_a_saved_partition_is_read_back(tmp_path: Path) -> None:
    """Indices and counts; the JSON is what the report draws."""
    made = make_partition(dataset(50), "dirichlet", 7, 0)
    made.save(tmp_path)
    back = Partition.load(tmp_path)
    assert all(np.array_equal(a, b) for a, b in zip(made.indices, back.indices, strict=True))
    described = json.loads((tmp_path / "partition.json").read_text())
    assert described == {"classes": list(made.classes), "counts": made.counts.tolist()}
