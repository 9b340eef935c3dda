"""Where the time of one round goes, without training to any target.

The paper's speed-ups (1.13×, 1.8×, 1.2×) are of whole trainings. Rounds to the target are counted in Figures 3, 5 and
6; what one round takes is measured here, with the paper's model sizes: one user's local training, its protocol work and
the server's, and from the bytes of its messages the transfer at the paper's 100 Mbit/s. The paper names no latency;
that of the simulated network is in the configuration. Seconds mean something on a machine that does nothing else.

Our `pairwise` draws the gaps between the ones of b_ij. The paper's construction draws a word for every coordinate of
every pair; what that takes is timed for some pairs and stands beside as "pairwise, d words per pair".
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
    """Which rounds are timed, and over which network they travel."""

    settings: tuple[Setting, ...]
    users: int = 2
    """Users whose training is timed; the mean counts."""
    repeats: int = 3
    """Of each user's training and of each system's round; the least counts, which a busy machine changes least."""
    alpha: float = 0.1
    dropout: float = 0.3
    bandwidth_mbit: float = 100.0
    latency_ms: float = 20.0


SCALES = {
    "quick": Config((Setting(("fig5",), "digits", "mlp", 15),), users=1, repeats=1),
    "default": Config(
        tuple(
            Setting(figures, dataset, model, clients)
            for figures, dataset, model in (
                (("fig3",), "cifar10", "cifar-cnn"),
                (("fig5", "fig6"), "mnist", "mnist-cnn"),
            )
            for clients in (25, 50, 75, 100)
        )
    ),
}
