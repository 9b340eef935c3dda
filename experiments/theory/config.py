"""Theorems 1 to 4, the corollary on dropouts, and both lemmas: what is sampled, counted and trained for each."""

from __future__ import annotations

from dataclasses import dataclass, field

ERROR_RATE = 1e-4
"""Of each statistical check: how often it fails although the statement holds."""


@dataclass(frozen=True)
class Compression:
    """Theorem 1: one user's number of coordinates, drawn many times."""

    clients: int = 20
    alpha: float = 0.1
    dims: tuple[int, ...] = (200, 1000, 5000)
    draws: int = 8000
    deviations: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
    """ε in standard deviations of the share that is sent."""


@dataclass(frozen=True)
class Anonymity:
    """Theorem 2: honest users per coordinate, for growing N."""

    cohorts: tuple[int, ...] = (25, 50, 100, 200)
    alpha: float = 0.2
    dropout: float = 0.3
    colluding: float = 1 / 3
    rounds: int = 20
    dim: int = 1000


@dataclass(frozen=True)
class Growth:
    """Theorem 3: work and bytes of real rounds that grow in N, in d, and in both."""

    clients: int = 16
    dim: int = 8000
    doublings: int = 2
    alpha: float = 0.1
    """Of `pairwise`."""
    dropout: float = 0.25


@dataclass(frozen=True)
class Dropouts:
    """The corollary: as many dropouts as the threshold allows, and one more."""

    cohorts: tuple[int, ...] = (12, 20, 50)
    dim: int = 200
    alpha: float = 0.5


@dataclass(frozen=True)
class Lemmas:
    """Lemmas 1 and 2: the mean of repeated rounds and its variance."""

    clients: int = 16
    dim: int = 48
    alpha: float = 0.5
    dropout: float = 0.1
    rounds: int = 120


@dataclass(frozen=True)
class InARun:
    """Lemma 1 over the rounds of one run, at the paper's setting, with keys that arrive or not, and with weights."""

    clients: int = 100
    dim: int = 1000
    alpha: float = 0.1
    dropout: float = 0.3
    rounds: int = 40
    first: int = 3
    """From which round on: from then on, users without key packages may be missing."""


@dataclass(frozen=True)
class Convergence:
    """Theorem 4: logistic regression with a quadratic penalty, trained through real rounds."""

    clients: int = 12
    alpha: float = 0.5
    dropout: float = 0.1
    penalty: float = 0.1
    local_steps: tuple[int, ...] = (1, 5)
    rounds: int = 50
    repeats: int = 5


@dataclass(frozen=True)
class Config:
    compression: Compression = field(default_factory=Compression)
    anonymity: Anonymity = field(default_factory=Anonymity)
    growth: Growth = field(default_factory=Growth)
    dropouts: Dropouts = field(default_factory=Dropouts)
    lemmas: Lemmas = field(default_factory=Lemmas)
    in_a_run: InARun = field(default_factory=InARun)
    convergence: Convergence = field(default_factory=Convergence)


SCALES = {
    "quick": Config(
        Compression(dims=(200, 1000), draws=300),
        Anonymity(cohorts=(20, 40), rounds=4, dim=300),
        Growth(clients=12, dim=1000, doublings=1),
        Dropouts(cohorts=(8,), dim=100),
        Lemmas(clients=10, rounds=20),
        InARun(clients=20, dim=400, rounds=8),
        Convergence(clients=8, rounds=6, repeats=3),
    ),
    "default": Config(),
}
