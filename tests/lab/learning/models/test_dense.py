"""Softmax regression and multi-layer perceptrons in NumPy."""

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import DenseNetwork, LocalTraining

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((12, 5)).astype(np.float32)
Y = RANDOM.integers(0, 3, 12)


@pytest.mark.parametrize(("hidden", "size"), [((), 18), ((4,), 39), ((4, 3), 51)])
def test_layers_cover_the_vector(hidden, size: int) -> None:
    """Weights and biases, one after the other."""
    network = DenseNetwork(5, 3, hidden)
    assert network.dim == size and network.layers[0].start == 0
    assert all(a.stop == b.start for a, b in zip(network.layers, network.layers[1:], strict=False))


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_one_step_goes_down_the_gradient(hidden) -> None:
    """The step of one batch is −lr times the slope of the mean loss, measured by finite differences."""
    network = DenseNetwork(5, 3, hidden)
    start = network.initial(1) + np.float32(0.05)
    how = LocalTraining(epochs=1, batch=12, lr=1.0, momentum=0.0)
    step = (network.train_local(start, X, Y, how, 0) - start).astype(np.float64)

    def loss(parameters):
        return network.evaluate(parameters.astype(np.float32), X, Y).loss / len(Y)

    width = 1e-2
    for at in range(0, network.dim, 3):
        away = np.zeros(network.dim)
        away[at] = width
        slope = (loss(start + away) - loss(start - away)) / (2 * width)
        assert -step[at] == pytest.approx(slope, abs=2e-3)


def test_training_is_that_of_torch() -> None:
    """Same weights, batches, momentum and rate as `torch.optim.SGD`: the same result up to rounding."""
    torch = pytest.importorskip("torch")
    network, how = DenseNetwork(5, 3, (4,)), LocalTraining(epochs=1, batch=12, lr=0.2, momentum=0.5)
    parameters = network.initial(3)
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    tensors = [module[0].weight, module[0].bias, module[2].weight, module[2].bias]
    for layer, tensor in zip(network.layers, tensors, strict=True):
        values = torch.from_numpy(parameters[layer.start : layer.stop].copy())
        tensor.data = values.reshape(tensor.shape[::-1]).T.clone() if tensor.ndim == 2 else values
    descent = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.5)
    for _ in range(3):
        descent.zero_grad()
        torch.nn.functional.cross_entropy(module(torch.from_numpy(X)), torch.from_numpy(Y)).backward()
        descent.step()
    # One batch holds all samples, so three epochs are three steps and their order does not matter.
    trained = network.train_local(parameters, X, Y, LocalTraining(3, 12, how.lr, how.momentum), 0)
    expected = np.concatenate([tensor.detach().numpy().T.reshape(-1) for tensor in tensors])
    assert np.allclose(trained, expected, atol=1e-6)


def test_training_is_repeatable_and_leaves_the_global_model_alone() -> None:
    """Same seed, same bits."""
    network = DenseNetwork(5, 3, (4,))
    start = network.initial(0)
    before = start.copy()
    one, same, other = (network.train_local(start, X, Y, LocalTraining(batch=4), seed) for seed in (1, 1, 2))
    assert np.array_equal(start, before) and one.dtype == np.float32
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_evaluation_counts_and_adds() -> None:
    """Parts of a test set add up to the whole."""
    network = DenseNetwork(5, 3)
    parameters = network.initial(0)
    whole = network.evaluate(parameters, X, Y)
    parts = network.evaluate(parameters, X[:5], Y[:5]) + network.evaluate(parameters, X[5:], Y[5:])
    assert (parts.correct, parts.samples) == (whole.correct, whole.samples)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-5)


def test_a_layer_needs_a_unit() -> None:
    """Width 0 is refused."""
    with pytest.raises(InvalidInput):
        DenseNetwork(5, 3, (0,))
