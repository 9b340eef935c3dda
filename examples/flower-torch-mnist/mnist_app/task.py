"""The model, the data, training and testing. Nothing here knows of Flower or of secure aggregation."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812  # Everybody's name for it.
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sparsesecagg.lab.learning.data import load_dataset


class Net(nn.Module):
    """Two convolutions with batch normalisation and one linear layer: 18,454 parameters, and integer counters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(16)
        self.linear = nn.Linear(16 * 7 * 7, 20)
        self.out = nn.Linear(20, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the scores of ten classes."""
        hidden = F.max_pool2d(F.relu(self.norm1(self.conv1(images))), 2)
        hidden = F.max_pool2d(F.relu(self.norm2(self.conv2(hidden))), 2)
        return self.out(F.relu(self.linear(hidden.flatten(1))))


@cache
def _mnist(folder: str) -> tuple[TensorDataset, TensorDataset]:
    """Return training and test images, from `folder`, $SPARSESECAGG_DATA or the network, in this order."""
    data = load_dataset("mnist", Path(folder) if folder else None)
    parts = [(data.train_x, data.train_y), (data.test_x, data.test_y)]
    train, test = (TensorDataset(torch.from_numpy(x).reshape(-1, 1, 28, 28), torch.from_numpy(y)) for x, y in parts)
    return train, test


def load_data(partition: int, samples: int, batch_size: int, folder: str) -> DataLoader:
    """Return one node's images: `samples` of them, after those of the nodes before it."""
    train, _ = _mnist(folder)
    start = partition * samples % max(1, len(train) - samples + 1)
    part = TensorDataset(*train[start : start + samples])
    return DataLoader(part, batch_size, shuffle=True)


def load_test_data(folder: str) -> DataLoader:
    """Return the images that no node has."""
    return DataLoader(_mnist(folder)[1], batch_size=500)


def train(net: Net, loader: DataLoader, epochs: int, learning_rate: float) -> float:
    """Train in place; return the mean loss of the last epoch."""
    optimiser = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
    net.train()
    loss = 0.0
    for _ in range(epochs):
        loss = 0.0
        for images, labels in loader:
            optimiser.zero_grad()
            batch_loss = F.cross_entropy(net(images), labels)
            batch_loss.backward()
            optimiser.step()
            loss += float(batch_loss.detach()) * len(labels) / len(loader.dataset)
    return loss


def test(net: Net, loader: DataLoader) -> tuple[float, float]:
    """Return loss and accuracy."""
    net.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in loader:
            scores = net(images)
            loss += float(F.cross_entropy(scores, labels, reduction="sum"))
            right += int((scores.argmax(1) == labels).sum())
    return loss / len(loader.dataset), right / len(loader.dataset)
