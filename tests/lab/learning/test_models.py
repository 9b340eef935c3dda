"""Models: sizes, gradients, descent, and the ones that are known by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput, MissingExtra
from sparsesecagg.lab.learning import Dataset, DenseNetwork
from sparsesecagg.lab.learning.models import (
    MODELS,
    PRESETS,
    Evaluation,
    LocalTraining,
    StridedNetwork,
    make_model,
)


def test_the_defaults_are_those_of_the_paper() -> None:
    """5 epochs, batches of 28, momentum 0.5, learning rate 0.01."""
    assert LocalTraining() == LocalTraining(epochs=5, batch=28, lr=0.01, momentum=0.5)


@given(st.integers(1, 100), st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**63))
def test_every_epoch_sees_every_sample_once(samples, epochs, batch, seed) -> None:
    """In an order of its own; no batch is too large but for one sample left over."""
    steps = LocalTraining(epochs=epochs, batch=batch).batches(samples, seed)
    seen = np.concatenate(steps).reshape(epochs, samples)
    assert (np.sort(seen, axis=1) == np.arange(samples)).all()
    assert max(map(len, steps)) <= batch + (batch > 1)


def test_a_single_sample_left_over_joins_the_batch_before() -> None:
    """Batch normalisation can't use a batch of one."""
    assert [len(step) for step in LocalTraining(epochs=1, batch=4).batches(9, 0)] == [4, 5]
    assert [len(step) for step in LocalTraining(epochs=1, batch=1).batches(3, 0)] == [1, 1, 1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch": 0},
        {"lr": 0.0},
        {"lr": float("inf")},
        {"momentum": 1.0},
        {"momentum": -0.1},
    ],
)
def test_settings_that_can_not_train_are_refused_by_name(wrong) -> None:
    """The error names the option."""
    with pytest.raises(InvalidInput) as caught:
        LocalTraining(**wrong)
    assert caught.value.option == next(iter(wrong))


def test_evaluations_of_parts_add_up() -> None:
    """So that a test set can be split among workers."""
    assert Evaluation(1, 0.5, 2) + Evaluation(3, 1.5, 4) == Evaluation(4, 2.0, 6)


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


@pytest.mark.parametrize(
    ("shape", "convolutions"),
    [
        ((1, 28, 28), ((5, 10), (5, 20))),
        ((3, 13, 12), ((4, 3), (3, 5))),
        ((2, 9, 9), ((3, 4),)),
    ],
)
def test_one_step_is_that_of_torch(shape: tuple[int, int, int], convolutions: tuple[tuple[int, int], ...]) -> None:
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
    for (side, made), weight, bias in zip(convolutions, parts[::2], parts[1::2], strict=False):
        kernel = weight.reshape(side, side, channels, made).permute(3, 2, 0, 1)
        values = torch.relu(torch.nn.functional.conv2d(values, kernel, bias, stride=2))
        channels = made
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
    network = StridedNetwork((1, 12, 12), 4, ((3, 6),), hidden=12)
    trained = network.train_local(network.initial(0), x, y, LocalTraining(epochs=8, lr=0.05), 0)
    assert network.evaluate(trained, x, y).correct > 190


def test_images_smaller_than_a_patch_are_refused() -> None:
    with pytest.raises(InvalidInput, match="needs larger images than 8 × 8 pixels"):
        StridedNetwork((1, 8, 8), 10, ((5, 10), (5, 20)), 50)


def images(*shape: int) -> Dataset:
    return Dataset.from_arrays(np.zeros((20, *shape)), np.arange(20) % 10)


@pytest.mark.parametrize(
    ("name", "shape", "dim"),
    [
        ("softmax", (64,), 650),
        ("mlp", (64,), 9_610),
        ("strided-cnn", (1, 28, 28), 21_840),
        ("strided-cnn", (3, 32, 32), 31_340),
        ("small-cnn", (1, 28, 28), 21_840),
        ("mnist-cnn", (1, 28, 28), 1_663_370),
        ("cifar-cnn", (3, 32, 32), 165_122),
    ],
)
def test_models_have_the_sizes_of_the_papers(name: str, shape, dim: int) -> None:
    """21,840 and 1,663,370 parameters exactly, about 165,000 for CIFAR-10."""
    if name == "small-cnn":
        pytest.importorskip("torch")
    data = images(*shape)
    model = make_model(name, data)
    assert model.dim == dim and model.name == name
    assert model.evaluate(model.initial(0), data.train_x[:2], data.train_y[:2]).samples == 2


def test_unknown_names_list_the_known_ones() -> None:
    """A typing error is answered with the choice."""
    with pytest.raises(InvalidInput, match=", ".join(MODELS)):
        make_model("cnn", images(64))


def test_a_model_for_other_images_says_which_would_do() -> None:
    """A CIFAR network on digits."""
    with pytest.raises(InvalidInput, match=r"use one of softmax, mlp$"):
        make_model("cifar-cnn", images(64))
    with pytest.raises(InvalidInput, match=r"takes images, .* has \(64,\)"):
        make_model("strided-cnn", images(64))


def test_without_torch_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded demo needs none; the convolutional networks do."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[torch\]'"):
        make_model("small-cnn", images(1, 28, 28))
    assert make_model(PRESETS["digits"][0], images(64)).dim == 9_610
