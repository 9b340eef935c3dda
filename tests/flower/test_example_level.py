"""Noise that protects single examples, in Flower: apps reply with rows, the mod clips them and adds them up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import FedAvg

from flower.local_grid import LocalGrid, model, training_app, values
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import DifferentialPrivacy, RefusedByAll, RoundOptions, SecAgg, per_example_steps
from sparsesecagg.flower.node import Owner
from sparsesecagg.protocol import Policy

DIM, NODES, EXAMPLES = 400, 10, 30
DP = DifferentialPrivacy(epsilon=20.0, rounds=2, clip=1.0, unit="example")
Train = Callable[[int, dict[str, np.ndarray], int], dict[str, np.ndarray]]


def long_rows(partition: int, arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    """Each example pulls at all parameters, far beyond its clip."""
    return {"w": np.full((EXAMPLES + partition, DIM), 7.0, np.float32)}


def start(train: Train = long_rows, rounds: int = 1, dp: DifferentialPrivacy = DP, **node_config: Any) -> Any:
    config = {name.replace("_", "-"): value for name, value in node_config.items()}
    nodes = LocalGrid(training_app(train), NODES, node_config=lambda index: config)
    secagg = SecAgg(FedAvg(), RoundOptions(alpha=0.5), dp=dp, timeout=0.3, gain=1)
    secagg.downlink_bits = 32
    result = secagg.start(nodes, model(w=np.zeros(DIM, np.float32)), num_rounds=rounds)
    return secagg, result


def test_the_model_moves_by_the_sum_of_the_clipped_examples() -> None:
    """Each of them is clipped to C√α in the slice of half of the parameters; FedAvg divides by the nodes."""
    secagg, result = start()
    moved = values(result.arrays)["w"]
    there, examples = np.flatnonzero(moved), sum(EXAMPLES + node for node in range(NODES))
    assert len(there) > 0.45 * DIM
    assert moved[there].mean() == pytest.approx(examples / NODES / np.sqrt(DIM), rel=0.05)
    spent = secagg.privacy_spent()
    assert spent is not None and 0 < spent.epsilon < 20


def test_each_round_is_counted_and_the_next_one_refused() -> None:
    with pytest.raises(PrivacyBudgetExhausted, match=r"2 rounds have spent .*\(example level, zero-out neighbours"):
        start(rounds=3)


def test_values_that_are_not_numbers_count_as_zero() -> None:
    def broken(partition: int, arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        return {"w": np.full((2, DIM), np.nan if partition == 3 else 0.0, np.float32)}

    assert np.isfinite(values(start(broken)[1].arrays)["w"]).all()


def trained(partition: int, arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    return {"w": arrays["w"] + 1}


def test_a_trained_model_is_refused_whose_steps_nobody_could_count(caplog: Any) -> None:
    """What several local steps lead to is a model, and not one row for each example."""
    with pytest.raises(RefusedByAll):
        start(trained)
    assert "must have one row for each example (unit='example'): 'w' has shape (400,)" in caplog.text


class TestOwner:
    """`secagg-unit=example` beside `secagg-max-epsilon`."""

    def test_says_what_its_budget_protects(self) -> None:
        config = {"secagg-max-epsilon": 20, "secagg-unit": "example"}
        nodes = LocalGrid(training_app(long_rows), NODES, node_config=lambda index: config)
        assert Owner(nodes.contexts[100]).policy == Policy(max_epsilon=20.0, unit="example")
        secagg, _ = start(secagg_max_epsilon=20, secagg_unit="example")
        assert secagg.history[0].failure is None

    def test_without_it_a_node_refuses_to_have_only_its_examples_protected(self) -> None:
        with pytest.raises(RefusedByAll, match="the policy demands that it protects the user"):
            start(secagg_max_epsilon=20)

    @pytest.mark.parametrize(
        ("config", "problem"),
        [
            ({"secagg-unit": "example"}, "secagg-unit must be given together with secagg-max-epsilon"),
            ({"secagg-max-epsilon": 1, "secagg-unit": "row"}, "secagg-unit must be user or example, got 'row'"),
        ],
    )
    def test_is_told_what_can_not_be(self, config: dict[str, Any], problem: str) -> None:
        nodes = LocalGrid(training_app(long_rows), NODES, node_config=lambda index: config)
        with pytest.raises(InvalidInput, match=problem):
            Owner(nodes.contexts[100])


class TestSteps:
    """`per_example_steps`, by PyTorch."""

    torch = pytest.importorskip("torch")

    def test_are_the_gradients_of_single_examples(self) -> None:
        torch = self.torch
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Tanh(), torch.nn.Linear(3, 2)
        )
        network[0].bias.requires_grad_(False)
        x, y, loss = torch.randn(5, 4), torch.randint(0, 2, (5,)), torch.nn.functional.cross_entropy
        rows = values(per_example_steps(network, loss, x, y, rate=0.5))
        assert set(rows) == set(network.state_dict())
        assert not rows["0.bias"].any(), "what is not trained stays as it is"
        for number in range(5):
            network.zero_grad()
            loss(network(x[number : number + 1]), y[number : number + 1]).backward()
            for name, parameter in network.named_parameters():
                if parameter.grad is not None:
                    assert np.allclose(rows[name][number], -0.5 * parameter.grad.numpy(), atol=1e-6)

    def test_need_a_model_that_does_not_mix_examples(self) -> None:
        torch = self.torch
        network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        with pytest.raises(InvalidInput, match="must not have batch normalisation, which mixes examples"):
            per_example_steps(network, torch.nn.functional.mse_loss, torch.zeros(2, 4), torch.zeros(2, 3), 1.0)
        with pytest.raises(InvalidInput, match="targets must be as many as the inputs, 2, got 3"):
            per_example_steps(network, torch.nn.functional.mse_loss, torch.zeros(2, 4), torch.zeros(3, 3), 1.0)
