"""The model and the data. Nothing here knows of Flower or of secure aggregation."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

TRAINING = 455
FEATURES = 30
Data = tuple[torch.Tensor, torch.Tensor]


def new_model() -> torch.nn.Module:
    """Return logistic regression that begins at zero: 31 parameters."""
    model = torch.nn.Linear(FEATURES, 1)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    return model


@cache
def _records() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return scikit-learn's 569 breast cancer records in a fixed random order.

    Each feature is scaled by its smallest and largest value, which the data set's description publishes: whatever is
    computed from private records instead would be outside of the noise.
    """
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    low, high = features.min(axis=0), features.max(axis=0)
    order = np.random.default_rng(0).permutation(len(labels))
    return (4 * (features - low) / (high - low) - 1)[order].astype(np.float32), labels[order].astype(np.float32)


def load_data(partition: int, partitions: int) -> Data:
    """Return the records of one silo."""
    features, labels = (torch.from_numpy(each[:TRAINING][partition::partitions]) for each in _records())
    return features, labels.unsqueeze(1)


def load_test_data() -> Data:
    """Return the 114 records that no silo has."""
    features, labels = (torch.from_numpy(each[TRAINING:]) for each in _records())
    return features, labels.unsqueeze(1)


def accuracy(model: torch.nn.Module, data: Data) -> float:
    """Return the part of the records that is recognised."""
    with torch.no_grad():
        return float(((model(data[0]) > 0) == (data[1] > 0.5)).float().mean())
