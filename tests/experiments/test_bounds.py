"""Theorem 4 and Lemma 2: the constants, term by term, and what they say about the patterns."""

from typing import Any

import numpy as np
import pytest

from experiments.theory import bounds as convergence
from experiments.theory.bounds import Problem
from experiments.theory.formulas import SelectionMoments, pairwise_moments, sampling_variance
from sparsesecagg.errors import InvalidInput

PROBLEM = Problem(
    smoothness=2.0, convexity=0.5, gradient_bound=3.0, local_steps=5, divergence=0.1, initial_distance=4.0
)
WEIGHTS = np.array([0.5, 0.3, 0.2])
NOISE = np.array([1.0, 2.0, 3.0])


def test_learning_rate_falls_as_the_theorem_prescribes() -> None:
    assert PROBLEM.offset == 32  # 8L/μ, above E.
    assert PROBLEM.learning_rate(0) == pytest.approx(2 / (0.5 * 32))
    assert PROBLEM.learning_rate(8) == pytest.approx(2 / (0.5 * 40))


def test_b_is_its_three_terms() -> None:
    noise = 0.25 * 1 + 0.09 * 2 + 0.04 * 3
    assert convergence.gradient_noise_constant(PROBLEM, WEIGHTS, NOISE) == pytest.approx(
        noise + 6 * 2 * 0.1 + 8 * 16 * 9
    )


def test_c_is_the_double_sum_written_out() -> None:
    moments = pairwise_moments(0.4, 3, dropout=0.2)
    p, joint = moments.participation, moments.joint
    double_sum = sum(
        WEIGHTS[i] ** 2 * (1 / p - 1) + sum(WEIGHTS[i] * WEIGHTS[j] * (joint / p**2 - 1) for j in range(3) if j != i)
        for i in range(3)
    )
    rate = PROBLEM.learning_rate(10)
    expected = 3 * 100 * p / (4 * 64**2) / rate**2 + 4 * 25 * 9 * double_sum
    found = convergence.sparsity_constant(PROBLEM, moments, WEIGHTS, dim=100, quantisation_level=64, step=10)
    assert found == pytest.approx(expected)
    lemma = convergence.lemma_2_bound(PROBLEM, moments, WEIGHTS, dim=100, quantisation_level=64, step=10)
    assert lemma == pytest.approx(expected * rate**2)


def test_the_bound_combines_b_c_and_the_initial_distance() -> None:
    moments = pairwise_moments(0.4, 3, dropout=0.2)
    options: dict[str, Any] = {"dim": 100, "quantisation_level": 64.0}
    constants = convergence.gradient_noise_constant(PROBLEM, WEIGHTS, NOISE) + convergence.sparsity_constant(
        PROBLEM, moments, WEIGHTS, **options, step=20
    )
    expected = 2 * 4 / (32 + 20) * (constants / 0.5 + 2 * 2 * 4)
    assert convergence.convergence_bound(PROBLEM, moments, WEIGHTS, NOISE, **options, steps=20) == pytest.approx(
        expected
    )


def test_everybody_sending_everything_adds_no_sampling_noise() -> None:
    assert convergence.selection_factor(SelectionMoments(1.0, 1.0), WEIGHTS) == pytest.approx(0)


def test_the_factor_bounds_the_exact_variance_for_gradients_of_any_sign() -> None:
    moments = pairwise_moments(0.4, 12, 0.2)
    weights = np.full(12, 1 / 12)
    for gradients in (np.tile([1.0, -1.0], 6), np.ones(12), np.random.default_rng(5).choice([-1.0, 1.0], 12)):
        variance = sampling_variance(moments, weights * gradients)
        assert variance <= convergence.selection_factor(moments, weights) * (1 + 1e-12)


@pytest.mark.parametrize(("change", "option"), [({"convexity": 3.0}, "convexity"), ({"local_steps": 0}, "local_steps")])
def test_constants_that_the_assumptions_exclude_are_refused(change: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Problem(**{"smoothness": 2.0, "convexity": 0.5, "gradient_bound": 1.0, "local_steps": 1} | change)
    assert caught.value.option == option
