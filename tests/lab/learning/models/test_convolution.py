"""The strided network: its gradient, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.models.base import LocalTraining
from sparsesecagg.lab.learning.models.convolution import Convolution, StridedNetwork


@pytest.mark.parametrize(
    ("shape", "convolutions"),
    [
        ((1, 28, 28), (Convolution(5, 10), Convolution(5, 20))),
        ((3, 13, 12), (Convolution(4, 3), Convolution(3, 5))),
        ((2, 9, 9), (Convolution(3, 4),)),
    ],
)
def test_one_step_is_that_of_torch(shape: tuple[int, int, int], convolutions: tuple[Convolution, ...]) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    network = StridedNetwork(shape, 4, convolutions, hidden=7)
    parameters = network.initial(1)
    x, y = random.random((6, *shape), dtype=np.float32), random.integers(0, 4, 6)
    once = LocalTraining(epochs=1, batch=6, lr=1.0, momentum=0.0)
    step = network.train_local(parameters, x, y, once, 0) - parameters

    vector = torch.tensor(parameters, requires_grad=True)
    values, channels = torch.tensor(x), shape[0]
    parts = [vector[layer.start : layer.stop] for layer in network.layers]
    for one, weight, bias in zip(convolutions, parts[::2], parts[1::2], strict=False):
        kernel = weight.reshape(one.kernel, one.kernel, channels, one.channels).permute(3, 2, 0, 1)
        values = torch.relu(torch.nn.functional.conv2d(values, kernel, bias, stride=2))
        channels = one.channels
    values = values.permute(0, 2, 3, 1).reshape(6, -1)
    hidden = torch.relu(values @ parts[-4].reshape(-1, 7) + parts[-3])
    scores = hidden @ parts[-2].reshape(7, 4) + parts[-1]
    torch.nn.functional.cross_entropy(scores, torch.tensor(y)).backward()
    np.testing.assert_allclose(step, -vector.grad.numpy(), atol=2e-6)


def test_it_learns_where_a_bright_spot_is() -> None:
    random = np.random.default_rng(0)
    y = random.integers(0, 4, 200)
    x = 0.1 * random.random((200, 1, 12, 12), dtype=np.float32)
    for image, label in zip(x, y, strict=True):
        image[0, 6 * (label // 2) + 2 : 6 * (label // 2) + 5, 6 * (label % 2) + 2 : 6 * (label % 2) + 5] += 1
    network = StridedNetwork((1, 12, 12), 4, (Convolution(3, 6),), hidden=12)
    trained = network.train_local(network.initial(0), x, y, LocalTraining(epochs=8, lr=0.05), 0)
    assert network.evaluate(trained, x, y).correct > 190


def test_images_smaller_than_a_patch_are_refused() -> None:
    with pytest.raises(InvalidInput, match="needs larger images than 8 × 8 pixels"):
        StridedNetwork((1, 8, 8), 10, (Convolution(5, 10), Convolution(5, 20)), 50)
