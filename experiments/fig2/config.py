"""Figure 2: which K = d/10 locations users choose, by chance and by magnitude, and how many two have in common.

As in the paper, training is sparsified: each way of choosing trains a model of its own, from the K values that every
user sends. Without sparsification ("dense") the same locations are only counted: what that changes stands beside it.

Differs from the paper: a small network (21,840 parameters) in place of McMahan's (1,663,370), and a fifth of MNIST, so
that it takes minutes. McMahan's is looked at in the first round, with few users.
"""

from __future__ import annotations

from dataclasses import dataclass

PAPER = {
    "iid": {"random": (10.0, 10.0), "top": (30.0, 10.0)},
    "shards": {"random": (10.0, 10.0), "top": (12.0, 12.0)},
}
"""Per cent at first and later, as the paper says in words, by way of dealing out the data; its non-IID is by shards."""


@dataclass(frozen=True)
class Large:
    """A look at another network with few users: what is counted are pairs, and these have six."""

    model: str = "mnist-cnn"
    users: int = 4
    rounds: int = 1


@dataclass(frozen=True)
class Config:
    dataset: str = "mnist"
    model: str | None = "strided-cnn"
    samples: int | None = 12_000
    clients: int = 30
    rounds: int = 8
    partitions: tuple[str, ...] = ("iid", "shards")
    shards: int = 300
    fraction: float = 0.1
    """K/d."""
    kinds: tuple[str, ...] = ("top", "random", "dense")
    large: Large | None = None


SCALES = {
    "quick": Config(dataset="digits", model=None, samples=None, rounds=3),
    "default": Config(large=Large()),
}
