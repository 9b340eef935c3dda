"""The theorems on data at small scale: all checks hold, and each of them is able to fail."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.common.work import Work
from experiments.theory import anonymity, compression, convergence, dropouts, growth, lemmas
from experiments.theory.checks import exceeds
from experiments.theory.config import (
    Anonymity,
    Compression,
    Config,
    Convergence,
    Dropouts,
    Growth,
    InARun,
    Lemmas,
)
from experiments.theory.logistic import LogisticProblem
from experiments.theory.plot import compare, plot
from experiments.theory.run import run

SMALL = Config(
    Compression(clients=10, dims=(200,), draws=300),
    Anonymity(cohorts=(20,), rounds=5, dim=100),
    Growth(clients=12, dim=400, doublings=1),
    Dropouts(cohorts=(7,), dim=40),
    Lemmas(clients=8, dim=20, rounds=15),
    InARun(clients=12, dim=100, rounds=7),
    Convergence(clients=6, local_steps=(1, 2), rounds=3, repeats=3),
)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(SMALL, 0, Work(tmp_path_factory.mktemp("work") / "theory", {})).numbers


def test_every_check_holds_and_states_its_error_rate(numbers: Any) -> None:
    assert numbers["all_hold"], [one for one in numbers["checks"] if not one["holds"]]
    for one in numbers["checks"]:
        assert ("bound" in one) != ("expected" in one)
        assert 0 <= one["error_rate"] <= 1e-3


def test_every_statement_of_the_paper_is_checked(numbers: Any) -> None:
    assert {one["source"] for one in numbers["checks"]} == {
        *(f"Theorem {number}" for number in range(1, 5)),
        *(f"Lemma {number}" for number in (1, 2)),
        "Corollary (dropouts)",
    }


def test_the_picture_and_the_comparison_need_the_result_only(numbers: Any, tmp_path: Path) -> None:
    result = {
        "name": "theory",
        "configuration": json.loads(json.dumps(dataclasses.asdict(SMALL))),
        "numbers": json.loads(json.dumps(numbers)),
    }
    assert all(path.stat().st_size > 0 for path in plot(result, tmp_path))
    assert all("fail" not in row.ours for row in compare(result))


def test_too_many_exceedances_show_a_bound_to_be_wrong() -> None:
    assert not exceeds(0, 1000, 0.001, 1e-4)
    assert not exceeds(3, 1000, 0.001, 1e-4)
    assert exceeds(12, 1000, 0.001, 1e-4)
    assert exceeds(1, 1000, 0.0, 1e-4)
    assert not exceeds(1000, 1000, 1.0, 1e-4)


def test_users_who_send_more_than_they_should_fail_theorem_1() -> None:
    config = SMALL.compression
    honest = compression.sent_counts(config, 200, 1)
    (found,) = compression.checks(config, compression.exceedance(config, 200, [count + 20 for count in honest]))
    assert not found["holds"]


def test_a_t_that_is_too_small_fails_theorem_2(numbers: Any) -> None:
    point = dict(numbers["anonymity"][0])
    point["measured"] -= 5 * point["standard_error"]
    (found,) = anonymity.checks([point])
    assert not found["holds"]


def test_secagg_users_expand_n_times_d_words(numbers: Any) -> None:
    """Which Theorem 3 calls O(N + d); the published pattern, drawn by gaps, stays below that."""
    exponent = {(fit["pattern"], fit["along"]): fit["user_work"] for fit in numbers["exponents"]}
    assert exponent["full", "N and d"] == pytest.approx(2, abs=0.1)
    assert exponent["pairwise", "N and d"] < 1.1
    quadratic = [dict(fit, user_work=2.0) for fit in numbers["exponents"]]
    assert not all(one["holds"] for one in growth.checks(quadratic))


def test_work_is_counted_to_the_byte() -> None:
    """SecAgg: each survivor expands d words for every peer and d of its own; the server each mask that is left.

    One word more than d: the number of values that were clipped travels beside them.
    """
    found = growth.measure(SMALL.growth, "full", 12, 400, 0)["numbers"]
    survivors, dropped, words = 9, 3, 4 * 401
    assert found["user_work"] == 12 * words
    assert found["server_work"] == (survivors + survivors * dropped) * words


def test_keys_and_shares_are_counted_beside_the_masks(numbers: Any) -> None:
    """What Theorem 3 does not mention grows with N, and sharing with its square."""
    found = numbers["unmentioned"]
    assert found["agreements_exponent"] == pytest.approx(1, abs=0.3)
    assert found["sharing_exponent"] == pytest.approx(2, abs=0.3)
    assert found["user_factor"] < 1


def test_a_dropout_that_is_not_noticed_fails_the_corollary() -> None:
    point = dropouts.measure(SMALL.dropouts, 7, 1)
    assert dropouts.checks([point])[0]["holds"]
    assert not dropouts.checks([dict(point, refused=point["refused"] - 1)])[0]["holds"]


def test_a_bias_fails_lemma_1_and_a_larger_variance_lemma_2() -> None:
    config = SMALL.lemmas
    point = lemmas.measure(config, 1)
    biased = dict(point, means=[mean + 2 for mean in point["means"]])
    assert not lemmas.checks(config, biased)[0]["holds"]
    noisy = dict(point, squares=[square + 50 * point["expected_variance"] for square in point["squares"]])
    assert not lemmas.checks(config, noisy)[2]["holds"]


def test_a_bias_in_a_run_fails_lemma_1() -> None:
    means = [0.88 + 0.001 * (number % 5) for number in range(38)]
    short = [{"way": "keys arrive", "means": means, "given_survivors": means}]
    assert [one["holds"] for one in lemmas.run_checks(SMALL.in_a_run, short)] == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize("way", lemmas.WAYS)
def test_steps_are_unbiased_over_the_rounds_of_a_run(way: str) -> None:
    """Within six standard errors, from the third round on, where users may have no key package."""
    means = lemmas.measure_run(InARun(clients=30, dim=1500, rounds=24), way, 0)["means"]
    error = np.std(means, ddof=1) / np.sqrt(len(means))
    assert np.mean(means) == pytest.approx(1, abs=6 * error)
    assert error < 0.06


def test_a_loss_above_the_bound_fails_theorem_4(numbers: Any) -> None:
    trained = numbers["convergence"][0]
    above = dict(trained, loss=[2 * bound + 1000 for bound in trained["bound"]])
    assert not convergence.checks(SMALL.convergence, [above])[0]["holds"]


class TestLogisticProblem:
    """The constants that Theorem 4's bound is made of are those of the problem."""

    problem = LogisticProblem.digits(4, 0.1, seed=0)

    def test_the_optimum_has_no_gradient(self) -> None:
        gradient = self.problem.together.sample_gradients(self.problem.optimum).mean(axis=0)
        assert np.abs(gradient).max() < 1e-9

    def test_gradients_are_the_slope_of_the_loss(self) -> None:
        user, rng = self.problem.users[0], np.random.default_rng(0)
        weights, direction = rng.normal(size=(2, self.problem.dim)) / 8
        slope = (user.loss(weights + 1e-6 * direction) - user.loss(weights - 1e-6 * direction)) / 2e-6
        assert slope == pytest.approx(float(user.sample_gradients(weights).mean(axis=0) @ direction), rel=1e-5)

    def test_the_curvature_lies_between_the_penalty_and_l(self) -> None:
        rng = np.random.default_rng(1)
        for user in self.problem.users:
            curvature = np.linalg.eigvalsh(user.hessian(rng.normal(size=self.problem.dim)))
            assert 0.1 * (1 - 1e-9) <= curvature[0] <= curvature[-1] <= self.problem.smoothness

    def test_users_with_unlike_data_have_a_positive_divergence(self) -> None:
        assert self.problem.divergence > 0
