"""What noisy sums cost: compared with dp-accounting, and with the divergence itself where that can be computed."""

from __future__ import annotations

from math import exp, inf, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.accountant import ORDERS, Cost, l1_bound, least, noise_for, skellam_cost, usable_delta

dp_accounting = pytest.importorskip("dp_accounting")


def test_epsilon_agrees_with_dp_accounting_over_random_settings() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        variance, l2 = 10 ** rng.uniform(1, 6), 10 ** rng.uniform(-1, 2.5)
        length, rounds, delta = int(10 ** rng.uniform(1, 6)), int(10 ** rng.uniform(0, 3)), 10 ** -rng.uniform(3, 9)
        cost = skellam_cost(variance, l2, l1_bound(l2, length))
        oracle = dp_accounting.rdp.RdpAccountant(orders=list(ORDERS))
        oracle.compose(dp_accounting.ZCDpEvent(rho=cost.rho, xi=cost.xi), rounds)
        assert cost.times(rounds).epsilon(delta) == pytest.approx(oracle.get_epsilon(delta), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("variance", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("shift", [1, 2, 4])
@pytest.mark.parametrize("order", [2, 3, 8])
def test_the_bound_is_never_below_the_true_divergence(variance: float, shift: int, order: int) -> None:
    """In one dimension the Rényi divergence of a Skellam variable from its shift can be added up."""
    stats = pytest.importorskip("scipy.stats")
    k = np.arange(-40, 41)  # Beyond, both are below 10^−300 for the smallest variance, and negligible for the largest.
    at, moved = (stats.skellam.logpmf(k - by, variance / 2, variance / 2) for by in (0, shift))
    true = np.logaddexp.reduce(order * at + (1 - order) * moved) / (order - 1)
    cost = skellam_cost(variance, float(shift), float(shift))
    assert true <= order * cost.rho + cost.xi


@given(st.floats(1.0, 1e5), st.floats(0.1, 100.0), st.floats(0.1, 1000.0), st.integers(2, 64))
def test_the_bound_is_that_of_the_skellam_mechanism(variance: float, l2: float, l1: float, order: int) -> None:
    """Agarwal, Kairouz and Liu, arXiv 2110.04995: the Rényi divergence of an integer order."""
    cost = skellam_cost(variance, l2, l1)
    published = order * l2**2 / (2 * variance) + ((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2)
    least = order * l2**2 * (1 + 1 / variance) / (2 * variance)  # The rest is never counted as less than nothing.
    assert order * cost.rho + cost.xi == pytest.approx(max(published, least), rel=1e-9)


def test_costs_of_rounds_add_up() -> None:
    one = skellam_cost(50.0, 2.0, 4.0)
    three = one + one + one
    assert three.rho == pytest.approx(one.times(3).rho)
    assert three.epsilon(1e-5) == pytest.approx(one.times(3).epsilon(1e-5))


@pytest.mark.slow
@given(st.floats(0.1, 20), st.integers(1, 500), st.sampled_from([1e-4, 1e-6]))
def test_the_noise_that_is_found_is_enough_and_hardly_more(epsilon: float, rounds: int, delta: float) -> None:
    l2 = 30.0
    l1 = l1_bound(l2, 1000)
    found = noise_for(epsilon, delta, rounds, l2, l1)
    assert skellam_cost((found * l2) ** 2, l2, l1).times(rounds).epsilon(delta) <= epsilon
    less = 0.999 * found
    assert skellam_cost((less * l2) ** 2, l2, l1).times(rounds).epsilon(delta) > epsilon


def test_no_noise_keeps_nothing() -> None:
    assert skellam_cost(0.0, 1.0, 1.0).rho == inf


def test_little_enough_costs_nothing_at_that_delta() -> None:
    assert Cost(1e-12, 0.0).epsilon(0.1) == 0.0


def test_near_gaussian_noise_costs_what_gaussian_noise_costs() -> None:
    """ρ of the Gaussian mechanism is Δ²/2σ²; Skellam's surcharge vanishes with the variance."""
    cost = skellam_cost(1e8, 1e3, l1_bound(1e3, 10_000))
    assert cost.rho == pytest.approx(1e6 / 2e8, rel=1e-6)
    assert cost.epsilon(1e-5) <= cost.rho + 2 * sqrt(cost.rho * log(1e5)) + 1e-3


@pytest.mark.parametrize(("option", "call"), [
    ("epsilon", lambda: noise_for(0.0, 1e-5, 1, 1.0, 1.0)),
    ("rounds", lambda: noise_for(1.0, 1e-5, 0, 1.0, 1.0)),
    ("epsilon", lambda: noise_for(1e-6, 1e-300, 1, 1.0, 1.0)),
    ("delta", lambda: Cost(1.0).epsilon(0.0)),
    ("delta", lambda: Cost(1.0).epsilon(1.0)),
    ("delta", lambda: usable_delta(2.0**-40, 1.0, -40.0)),
])  # fmt: skip
def test_settings_that_mean_nothing_are_named(option: str, call: object) -> None:
    assert callable(call)
    with pytest.raises(InvalidInput) as caught:
        call()
    assert caught.value.option == option


def test_what_is_left_of_delta_is_less_the_failures_of_groups_and_of_draws() -> None:
    """2^50 draws, each off by 2^−110 in total variation, each of which e^ε + 1 times counts."""
    left = usable_delta(2.0**-55, 3.0, -70.0)
    assert left == pytest.approx(2.0**-55 - 2.0**-70 - (1 + exp(3.0)) * 2.0**-60, rel=1e-12)


def test_nothing_spent_costs_nothing() -> None:
    assert Cost() == Cost(0.0, 0.0)
    assert Cost().epsilon(1e-9) == 0.0


@pytest.mark.parametrize("delta", [0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.05, 0.3, 1.0])
def test_a_large_delta_agrees_with_dp_accounting_too(rho: float, delta: float) -> None:
    """There a small divergence is within delta altogether."""
    oracle = dp_accounting.rdp.RdpAccountant(orders=list(ORDERS))
    oracle.compose(dp_accounting.ZCDpEvent(rho=rho))
    assert Cost(rho).epsilon(delta) == pytest.approx(oracle.get_epsilon(delta), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("edge", [0.01, 0.3, 1.0, 5.0, 1e6])
def test_the_least_that_is_enough_is_found_to_the_last_bit(edge: float) -> None:
    assert least(lambda number: number >= edge) == pytest.approx(edge, rel=1e-15)


@pytest.mark.parametrize(("l2", "length", "bound"), [(30.0, 1000, 900.0), (300.0, 100, 3000.0), (0.5, 4, 0.25)])
def test_an_integer_vector_has_a_1_norm_of_at_most_its_squared_norm(l2: float, length: int, bound: float) -> None:
    assert l1_bound(l2, length) == bound
