"""Figure 2: which K = d/10 locations users would choose, by chance and by magnitude, and how many two have in common.

Differs from the paper: the small network (21,840 parameters) in place of McMahan's (1,663,370), and a sixth of MNIST,
so that 25 rounds of 30 users take minutes; `--paper` uses the large network and all of MNIST. Locations are counted
beside plain federated averaging: they are what users would send, and do not change the training.
"""

from __future__ import annotations

from dataclasses import dataclass

PAPER = {
    "iid": {"random": "10 %", "top": "30 % at first, falling to 10 %"},
    "shards": {"random": "10 %", "top": "12 % throughout"},
}
"""What the paper says in words, by way of dealing out the data; its non-IID one is by shards."""


@dataclass(frozen=True)
class Config:
    dataset: str = "mnist"
    model: str | None = "small-cnn"
    samples: int | None = 10_000
    clients: int = 30
    rounds: int = 25
    partitions: tuple[str, ...] = ("iid", "shards")
    shards: int = 300
    fraction: float = 0.1
    """K/d."""


SCALES = {
    "quick": Config(dataset="digits", model=None, samples=None, rounds=3),
    "default": Config(),
    "paper": Config(model="mnist-cnn", samples=None, rounds=100),
}
