"""McMahan's network in NumPy: it computes what torch computes."""

from __future__ import annotations

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import LocalTraining
from sparsesecagg.lab.learning.pooled import KERNEL, PooledNetwork

ONCE = LocalTraining(epochs=1, batch=6, lr=1.0, momentum=0.0)


@pytest.mark.parametrize(("side", "channels"), [(28, (32, 64)), (8, (3, 5)), (12, (2, 4))])
def test_one_step_is_that_of_torch(side: int, channels: tuple[int, int]) -> None:
    """With an empty corner, where all four of a pool are equal."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    random = np.random.default_rng(0)
    network = PooledNetwork(side, channels, 7, 4)
    parameters = network.initial(1) + np.float32(0.05)
    x, y = random.random((6, 1, side, side), dtype=np.float32), random.integers(0, 4, 6)
    x[:, :, : side // 2, : side // 2] = 0
    step = network.train_local(parameters, x, y, ONCE, 0) - parameters

    vector = torch.tensor(parameters, requires_grad=True)
    values, before = torch.tensor(x), 1
    parts = [vector[layer.start : layer.stop] for layer in network.layers]
    for made, weight, bias in zip(channels, parts[::2], parts[1::2], strict=False):
        kernel = weight.reshape(KERNEL, KERNEL, before, made).permute(3, 2, 0, 1)
        values = functional.max_pool2d(torch.relu(functional.conv2d(values, kernel, bias, padding=2)), 2)
        before = made
    hidden = torch.relu(values.permute(0, 2, 3, 1).reshape(6, -1) @ parts[-4].reshape(-1, 7) + parts[-3])
    scores = hidden @ parts[-2].reshape(7, 4) + parts[-1]
    functional.cross_entropy(scores, torch.tensor(y)).backward()
    largest = float(vector.grad.abs().max())
    np.testing.assert_allclose(step, -vector.grad.numpy(), atol=1e-4 * largest)
    correct = int((scores.argmax(dim=1).numpy() == y).sum())
    assert network.evaluate(parameters, x, y).correct == correct


def test_sides_that_pools_do_not_divide_are_refused() -> None:
    with pytest.raises(InvalidInput, match="multiple of 4, got 10"):
        PooledNetwork(10, (2, 3), 4, 2)
