"""The model, the data, training and testing. Nothing here knows of Flower or of secure aggregation."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Weights = list[NDArray[np.float32]]

HIDDEN = 64
CLASSES = 10
PIXELS = 64


def new_model(seed: int = 0) -> Weights:
    """Return a network with one hidden layer: 4,810 parameters."""
    rng = np.random.default_rng(seed)
    sizes = [(PIXELS, HIDDEN), (HIDDEN, CLASSES)]
    weights: Weights = []
    for inputs, outputs in sizes:
        weights.append(rng.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32))
        weights.append(np.zeros(outputs, np.float32))
    return weights


@cache
def _digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return scikit-learn's 1,797 images of 8 × 8 pixels in a fixed random order."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)


def load_data(partition: int, partitions: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return one node's images and labels, out of the first 1,437."""
    images, labels = _digits()
    return images[:1437][partition::partitions], labels[:1437][partition::partitions]


def load_test_data() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the 360 images that no node has."""
    images, labels = _digits()
    return images[1437:], labels[1437:]


def _forward(weights: Weights, images: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    hidden = np.maximum(images @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def train(
    weights: Weights,
    data: tuple[NDArray[np.float32], NDArray[np.int64]],
    epochs: int,
    learning_rate: float,
    batch_size: int,
    seed: int = 0,
) -> float:
    """Train in place by stochastic gradient descent; return the mean loss of the last epoch."""
    images, labels = data
    rng = np.random.default_rng(seed)
    loss = 0.0
    for _ in range(epochs):
        order, loss = rng.permutation(len(labels)), 0.0
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            hidden, likely = _forward(weights, images[batch])
            rows = np.arange(len(batch))
            loss -= float(np.log(likely[rows, labels[batch]] + 1e-9).sum()) / len(order)
            slope = likely
            slope[rows, labels[batch]] -= 1
            slope /= len(batch)
            back = (slope @ weights[2].T) * (hidden > 0)
            gradients = [images[batch].T @ back, back.sum(0), hidden.T @ slope, slope.sum(0)]
            for place, gradient in enumerate(gradients):
                weights[place] -= np.float32(learning_rate) * gradient
    return loss


def test(weights: Weights, data: tuple[NDArray[np.float32], NDArray[np.int64]]) -> tuple[float, float]:
    """Return loss and accuracy."""
    images, labels = data
    _, likely = _forward(weights, images)
    loss = -float(np.log(likely[np.arange(len(labels)), labels] + 1e-9).mean())
    return loss, float((likely.argmax(axis=1) == labels).mean())
