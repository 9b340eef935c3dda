"""A strongly convex problem whose constants are known: logistic regression on the digits with a quadratic penalty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.learning.data import load_dataset, make_partition

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class User:
    """One user's samples, and F_i(w) = mean log(1 + e^(−y·xw)) + λ/2·‖w‖²."""

    inputs: Vector
    signs: Vector
    penalty: float

    def loss(self, weights: Vector) -> float:
        """Return F_i."""
        margins = self.signs * (self.inputs @ weights)
        return float(np.logaddexp(0, -margins).mean() + self.penalty / 2 * weights @ weights)

    def sample_gradients(self, weights: Vector) -> Vector:
        """Return ∇F_i(w, ξ) for every sample ξ, one per row."""
        margins = self.signs * (self.inputs @ weights)
        factors = -self.signs / (1 + np.exp(margins))
        gradients: Vector = factors[:, None] * self.inputs + self.penalty * weights
        return gradients

    def hessian(self, weights: Vector) -> Vector:
        """Return the second derivative of F_i."""
        slope = 1 / (1 + np.exp(-self.inputs @ weights))
        curved: Vector = (self.inputs * (slope * (1 - slope))[:, None]).T @ self.inputs / len(self.signs)
        return curved + self.penalty * np.eye(len(weights))

    def minimum(self) -> Vector:
        """Return the minimiser, by Newton's method, whose every step halves until it descends."""
        weights = np.zeros(self.inputs.shape[1])
        for _ in range(50):
            step = np.linalg.solve(self.hessian(weights), self.sample_gradients(weights).mean(axis=0))
            scale = 1.0
            while scale > 1e-9 and self.loss(weights - scale * step) > self.loss(weights):
                scale /= 2
            weights = weights - scale * step
            if float(step @ step) < 1e-24:
                break
        return weights

    @property
    def smoothness(self) -> float:
        """L of this user: the logistic function bends by a quarter at most."""
        return float(np.linalg.eigvalsh(self.inputs.T @ self.inputs / len(self.signs))[-1] / 4 + self.penalty)


@dataclass(frozen=True)
class LogisticProblem:
    """All users, each with an equal number of samples, so that all β_i = 1/N."""

    users: tuple[User, ...]
    penalty: float

    @classmethod
    @cache
    def digits(cls, clients: int, penalty: float, seed: int) -> LogisticProblem:
        """Ask of every digit whether it is 5 or more."""
        data = load_dataset("digits")
        inputs = data.train_x.reshape(len(data.train_y), -1).astype(np.float64)
        inputs = np.hstack([inputs, np.ones((len(inputs), 1))])
        signs = np.where(np.asarray(data.train_y) >= 5, 1.0, -1.0)
        shares = make_partition(data, "iid", clients, seed).indices
        least = min(len(share) for share in shares)
        return cls(tuple(User(inputs[share[:least]], signs[share[:least]], penalty) for share in shares), penalty)

    @cached_property
    def together(self) -> User:
        """All samples in one place: F = Σ β_i F_i, as users hold equally many."""
        return User(
            np.vstack([user.inputs for user in self.users]),
            np.concatenate([user.signs for user in self.users]),
            self.penalty,
        )

    @property
    def dim(self) -> int:
        """How many weights there are."""
        return int(self.users[0].inputs.shape[1])

    @cached_property
    def optimum(self) -> Vector:
        """w*."""
        return self.together.minimum()

    @cached_property
    def divergence(self) -> float:
        """Γ = F* − Σ β_i F_i*."""
        own = [user.loss(user.minimum()) for user in self.users]
        return self.together.loss(self.optimum) - float(np.mean(own))

    @property
    def smoothness(self) -> float:
        """L, the largest of the users'."""
        return max(user.smoothness for user in self.users)
