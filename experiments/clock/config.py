"""Where the time of one round goes, without training to any target.

The paper's speed-ups (1.13×, 1.8×, 1.2×) are of whole trainings. Rounds to the target are counted in Figures 3, 5 and
6; what one round takes is measured here, with the paper's model sizes: one user's local training, its protocol work and
the server's, and from the bytes of its messages the transfer at the paper's 100 Mbit/s. The paper names no latency;
that of the simulated network is in the configuration. Seconds mean something on a machine that does nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

CLAIMS = {"fig3": 1.13, "fig5": 1.8, "fig6": 1.2}
"""The paper's speed-ups over SecAgg."""


@dataclass(frozen=True)
class Setting:
    """One figure's network and data, and a number of users that the data is dealt out to."""

    figures: tuple[str, ...]
    dataset: str
    model: str
    clients: int


@dataclass(frozen=True)
class Config:
    settings: tuple[Setting, ...]
    users: int = 2
    """Users whose training is timed; the mean counts."""
    alpha: float = 0.1
    dropout: float = 0.3
    bandwidth_mbit: float = 100.0
    latency_ms: float = 20.0
    committee: int = 10


SCALES = {
    "quick": Config((Setting(("fig5",), "digits", "mlp", 15),), users=1),
    "default": Config(
        (
            Setting(("fig3",), "cifar10", "cifar-cnn", 25),
            Setting(("fig3",), "cifar10", "cifar-cnn", 100),
            Setting(("fig5", "fig6"), "mnist", "mnist-cnn", 25),
            Setting(("fig5", "fig6"), "mnist", "mnist-cnn", 100),
        )
    ),
    "paper": Config(
        tuple(
            Setting(figures, dataset, model, clients)
            for figures, dataset, model in (
                (("fig3",), "cifar10", "cifar-cnn"),
                (("fig5", "fig6"), "mnist", "mnist-cnn"),
            )
            for clients in (25, 50, 75, 100)
        ),
        users=5,
    ),
}
