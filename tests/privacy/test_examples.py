"""Noise that protects single examples: rows are clipped and rounded one by one, and only their sum leaves."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf, isqrt, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from sparsesecagg import Cohort, InProcessRun, Parameters, Policy, RoundOptions, Stage
from sparsesecagg.errors import InvalidInput, MalformedMessage, PolicyViolation, PrivacyBudgetExhausted
from sparsesecagg.flower.packing import ExampleRows
from sparsesecagg.planning.noise import DifferentialPrivacy, with_noise
from sparsesecagg.privacy.accountant import Cost
from sparsesecagg.privacy.mechanism import Mechanism
from sparsesecagg.protocol.ledger import MemoryLedger

Rows = NDArray[np.floating[Any]]
OPTIONS: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 0.5, "per_example": True}


def fixed(byte: int) -> Callable[[int], bytes]:
    return lambda size: bytes([byte] * size)


def summed(mechanism: Mechanism, rows: Rows, entropy: Callable[[int], bytes] = os.urandom) -> NDArray[np.int64]:
    """Return the integers of an upload before noise, read in two pieces."""
    pieces, (clip, rounding, _) = np.array_split(rows, 2, axis=-1), mechanism.steps(1, entropy)
    clip.begin(lambda: pieces)
    rounding.begin(lambda: [clip.apply(piece) for piece in pieces])
    return np.concatenate([rounding.apply(clip.apply(piece)) for piece in pieces])


@given(
    arrays.arrays(np.float32, (6, 20), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)),
    st.integers(0, 5),
    st.integers(0, 255),
)
@settings(max_examples=300)
def test_one_example_changes_the_sum_by_no_more_than_is_accounted_for(rows: Rows, which: int, drawn: int) -> None:
    """Whatever the rows are, and whatever was drawn for them."""
    mechanism = Mechanism(1.0, 1.0, 0.25, 20, per_example=True)
    neighbour = rows.copy()
    neighbour[which] = 0
    difference = summed(mechanism, rows, fixed(drawn)) - summed(mechanism, neighbour, fixed(drawn))
    assert int(np.square(difference).sum()) <= mechanism.squared_norm


def test_rounding_the_sum_instead_would_change_more() -> None:
    """The control: where the sum is rounded with fresh draws, an example that is tiny may change every coordinate."""
    rng, rows = np.random.default_rng(0), np.full((40, 1000), 0.5)
    rows[0] = 0.01
    changed = np.floor(rows.sum(0) + rng.random(1000)) - np.floor(rows[1:].sum(0) + rng.random(1000))
    assert np.square(changed).sum() > 100 * np.square(rows[0]).sum()


def test_a_node_sends_all_of_its_examples_and_not_one_clip() -> None:
    mechanism = Mechanism(1.0, 1.0, 1.0, 30, per_example=True)
    rows = np.full((50, 30), 3.0)
    assert np.allclose(summed(mechanism, rows) / mechanism.scale, 50 / sqrt(30), rtol=0.01)
    assert not summed(mechanism, rows[:0]).any(), "a node without examples sends noise alone"
    assert mechanism.levels * isqrt(30) >= 120
    assert Mechanism(1.0, 1.0, 1.0, 10**6, per_example=True).levels == Mechanism(1.0, 1.0, 1.0, 10**6).levels == 2


def test_where_users_are_protected_rows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must be one vector in a run whose noise protects users"):
        summed(Mechanism(1.0, 1.0, 1.0, 30), np.ones((2, 30)))


def test_sums_hold_all_examples_and_the_noise_of_their_users() -> None:
    """Everybody there, and just enough there: the variance is n·μ/H, never below μ."""
    for drops in ({}, {0: Stage.UPLOAD, 1: Stage.UPLOAD}):
        run = InProcessRun(Parameters.create(8, 400, RoundOptions(threshold=6, **OPTIONS)))
        mechanism = run.params.mechanism
        assert mechanism
        rows = [ExampleRows(np.full((user + 1, 400), 9.0)) for user in range(8)]
        found = []
        for _ in range(4):
            outcome = run.round(rows, drops=drops)
            found.append(outcome.result.total)
            run.share_keys(drops)
        sums, there = np.concatenate(found), 8 - len(drops)
        examples = sum(user + 1 for user in range(8) if user not in drops)
        expected = there / run.clients[0].promise.anonymity * mechanism.variance
        assert expected >= mechanism.variance
        assert np.var(sums) == pytest.approx(expected, rel=0.15)
        assert np.mean(sums) == pytest.approx(
            examples * mechanism.scale / sqrt(400), abs=5 * sqrt(expected / len(sums))
        )


def test_the_noise_keeps_the_goal_for_an_example() -> None:
    goal = DifferentialPrivacy(epsilon=4.0, rounds=30, clip=0.1, unit="example")
    params = Parameters.create(10, 31, with_noise(RoundOptions(), goal, 10, 31))
    assert params.mechanism and params.per_example and params.modulus_bits == 32
    assert 3.95 < params.mechanism.cost.times(30).epsilon(1e-5) <= 4
    assert goal.meaning.startswith("example level, zero-out neighbours")


class TestBudget:
    """What a user's ledger counts, and in which unit."""

    params = Parameters.create(5, 64, RoundOptions(**{**OPTIONS, "noise_multiplier": 3.0}, dropout=0.0))

    def spent(self, policy: Policy) -> Cost:
        ledgers = [MemoryLedger() for _ in range(5)]
        run = InProcessRun(self.params, Cohort(policy=policy, ledger_of=lambda user: ledgers[user]))
        assert run.round([ExampleRows(np.ones((3, 64)))] * 5).exact
        return ledgers[0].spent()

    def test_an_upload_costs_each_example_once(self) -> None:
        assert self.params.mechanism
        assert self.spent(Policy(max_epsilon=5, unit="example")) == self.params.mechanism.cost

    def test_a_user_that_counts_as_a_whole_has_no_budget_left_afterwards(self) -> None:
        spent = self.spent(Policy())
        assert spent.epsilon(1e-5) == inf
        users = self.params.replace(per_example=False)
        with pytest.raises(PrivacyBudgetExhausted):
            Policy(max_epsilon=20).check_budget(users, spent)

    def test_a_user_that_demands_protection_as_a_whole_takes_no_part(self) -> None:
        with pytest.raises(
            PolicyViolation, match="protects single examples, the policy demands that it protects the user"
        ):
            Policy(max_epsilon=20).check(self.params)


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("per_example", {"clip_norm": None, "noise_multiplier": 0.0}),
        ("modulus_bits", {"modulus_bits": 24}),
        ("max_weight", {"max_weight": 5}),
    ],
)
def test_what_it_does_not_go_with_is_refused_by_name(option: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Parameters.create(10, 64, RoundOptions(**{**OPTIONS, **options}))
    assert caught.value.option == option


def test_parameters_say_it_only_where_it_is_so() -> None:
    examples = Parameters.create(5, 64, RoundOptions(**OPTIONS), session=bytes(32))
    users = examples.replace(per_example=False)
    assert Parameters.decode(examples.encode()) == examples
    assert Parameters.decode(users.encode()) == users
    assert len(examples.encode()) == len(users.encode()) + 1
    assert examples.digest != users.digest
    with pytest.raises(MalformedMessage, match="must not say that noise protects examples"):
        Parameters.decode(examples.encode()[:-1] + b"\xc2")


def test_a_unit_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unit must be 'user' or 'example', got 'row'"):
        DifferentialPrivacy(1.0, 1, unit="row").check(10)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="unit must be 'user' or 'example', got 'row'"):
        Policy(unit="row")
