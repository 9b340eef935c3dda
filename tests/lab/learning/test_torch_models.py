"""Any torch module as a flat vector: what travels, what stays."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import LocalTraining, TorchModel

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((13, 4)).astype(np.float32)
Y = RANDOM.integers(0, 2, 13)
HOW = LocalTraining(epochs=1, batch=4, lr=0.1)


def normalisation_of(module: Any) -> Any:
    """Return the second layer of what `normalised` returns."""
    return module[1]


def normalised():
    """Return a module with batch normalisation: float statistics and an integer counter."""
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU(), torch.nn.Linear(3, 2))


def test_parameters_and_statistics_travel_and_counters_stay() -> None:
    """4·3+3 weights, 3+3 of the normalisation, 3·2+2 weights, then 3+3 running statistics; no counter."""
    model = TorchModel(normalised)
    assert model.dim == 15 + 6 + 8 + 6
    assert [layer.name for layer in model.layers][-2:] == ["1.running_mean", "1.running_var"]


def test_running_statistics_are_part_of_an_update() -> None:
    """Local training moves them, so averaging does too."""
    model = TorchModel(normalised)
    start = model.initial(0)
    update = model.train_local(start, X, Y, HOW, 0) - start
    assert np.abs(update[-6:]).min() > 0


def test_counters_are_the_servers_before_every_training() -> None:
    """A user's count of batches does not leak into the next user's training."""
    model = TorchModel(normalised)
    start = model.initial(0)
    model.train_local(start, X, Y, HOW, 0)
    assert int(normalisation_of(model.module(start)).num_batches_tracked) == 0
    first = model.train_local(start, X, Y, HOW, 7)
    model.train_local(start + 1, X, Y, HOW, 1)
    assert np.array_equal(model.train_local(start, X, Y, HOW, 7), first)


def test_a_running_variance_is_held_away_from_zero() -> None:
    """Sparse, rounded averages may go near or below it; the model must give neither NaN nor huge values."""
    model = TorchModel(normalised)
    parameters = model.initial(0)
    parameters[-3:] = -0.5
    assert np.isfinite(model.evaluate(parameters, X, Y).loss)
    parameters[-3:] = [3.0, -0.5, 1e-9]
    assert normalisation_of(model.module(parameters)).running_var.tolist() == pytest.approx([3.0, 0.05, 0.05])


def test_frozen_parameters_stay() -> None:
    """Only what is trained travels, as with adapters on a large model."""
    module = normalised()
    for parameter in module[0].parameters():
        parameter.requires_grad = False
    model = TorchModel(module)
    assert model.dim == 6 + 8 + 6
    after = model.module(model.train_local(model.initial(0), X, Y, HOW, 0))
    assert torch.equal(after.get_parameter("0.weight"), module.get_parameter("0.weight"))


def test_a_module_brings_its_own_weights_and_is_left_alone() -> None:
    """Given a module, training begins with its weights, and works on a copy."""
    module = normalised()
    before = copy.deepcopy(module.state_dict())
    model = TorchModel(module)
    start = model.initial(5)
    model.train_local(start, X, Y, HOW, 0)
    assert np.array_equal(start[:12], before["0.weight"].numpy().reshape(-1))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_function_makes_the_module_from_the_seed() -> None:
    """Same seed, same first model."""
    model = TorchModel(normalised)
    assert np.array_equal(model.initial(1), model.initial(1))
    assert not np.array_equal(model.initial(1), model.initial(2))


def test_training_with_dropout_is_repeatable() -> None:
    """The seed decides the module's own randomness too."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
    model = TorchModel(module)
    start = model.initial(0)
    one, same, other = (model.train_local(start, X, Y, HOW, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_a_loss_of_ones_own() -> None:
    """Any function of output and labels."""
    model = TorchModel(torch.nn.Linear(4, 1), loss=lambda output, target: ((output[:, 0] - target.float()) ** 2).mean())
    start = model.initial(0)
    assert model.evaluate(model.train_local(start, X, Y, HOW, 0), X, Y).loss < model.evaluate(start, X, Y).loss


def test_tied_weights_travel_once() -> None:
    """A tensor used twice is one layer."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    module[1].weight = module[0].weight
    assert TorchModel(module).dim == 16


def test_a_model_can_be_sent_to_worker_processes() -> None:
    """Where processes do not fork, it is pickled."""
    model = TorchModel(normalised())
    back = pickle.loads(pickle.dumps(model))  # noqa: S301 (our own bytes)
    assert np.array_equal(back.initial(0), model.initial(0))


def test_what_can_not_be_trained_is_refused() -> None:
    """No trainable parameter, complex numbers, or no module at all."""
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    wrongs: list[Any] = [frozen, torch.nn.Linear(2, 2, dtype=torch.complex64), lambda: "no module"]
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            TorchModel(wrong)
