"""A user's privacy budget: checked before anything is trained, spent with the upload, kept in the ledger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from protocol.rounds import Run, lenient, small
from sparsesecagg.errors import AlreadyAnswered, InvalidInput, PolicyViolation, PrivacyBudgetExhausted
from sparsesecagg.privacy.accountant import Cost, usable_delta
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, SqliteLedger
from sparsesecagg.protocol.ledger import Entry, Spending
from sparsesecagg.protocol.policy import sharing_noise

NOISY = small(dim=8, clip_norm=1.0, noise_multiplier=1.0, modulus_bits=32)
DELTA = 1e-5


def policy_for(rounds: int, params: Parameters = NOISY) -> Policy:
    """Return the policy of an owner whose budget is enough for so many rounds and a half."""
    assert params.mechanism is not None
    spent = params.mechanism.cost.times(rounds + 1)
    more = spent.epsilon(usable_delta(DELTA, 1.0, -40.0))
    less = params.mechanism.cost.times(rounds).epsilon(usable_delta(DELTA, 1.0, -40.0))
    return lenient(max_epsilon=(less + more) / 2, delta=DELTA, clip_norm=1.0)


def test_a_run_that_clips_more_loosely_than_its_owner_allows_is_refused() -> None:
    Client(0, NOISY, lenient(clip_norm=1.0))
    with pytest.raises(PolicyViolation, match=r"clips to a norm of 1, the policy allows 0\.9"):
        Client(0, NOISY, lenient(clip_norm=0.9))


def test_delta_must_be_below_one_over_the_users() -> None:
    """Else a run may give one of them away."""
    Client(0, NOISY, lenient(max_epsilon=20.0, clip_norm=1.0, delta=0.19), ledger=MemoryLedger())
    with pytest.raises(PolicyViolation, match=r"delta must be below one over them, which 0\.2 is not"):
        Client(0, NOISY, lenient(max_epsilon=20.0, clip_norm=1.0, delta=0.2), ledger=MemoryLedger())


def test_who_demands_no_noise_may_have_any_delta() -> None:
    Client(0, NOISY, lenient(delta=0.5))
    Client(0, small(), lenient(delta=0.5))


def test_noise_that_protects_examples_is_too_little_for_who_demands_it_for_the_user() -> None:
    params = NOISY.replace(per_example=True)
    Client(0, params, lenient(max_epsilon=20.0, clip_norm=1.0, delta=DELTA, unit="example"), ledger=MemoryLedger())
    Client(0, NOISY, lenient(max_epsilon=20.0, clip_norm=1.0, delta=DELTA, unit="example"), ledger=MemoryLedger())
    Client(0, params, lenient())
    with pytest.raises(PolicyViolation, match="protects single examples"):
        Client(0, params, lenient(max_epsilon=20.0, clip_norm=1.0, delta=DELTA), ledger=MemoryLedger())


def test_noise_for_users_costs_an_example_twice_the_norm() -> None:
    """Without one example the whole update may be any other: two updates of norm C are up to 2C apart."""
    assert NOISY.mechanism is not None
    user, example = (lenient(max_epsilon=20.0, unit=unit).cost(NOISY) for unit in ("user", "example"))
    assert user == NOISY.mechanism.cost
    assert example.rho == pytest.approx(4 * user.rho)


def test_all_users_share_the_noise_alike_whatever_their_policies() -> None:
    """Else the noise of a careful owner's peers would be less than it counts on."""
    params = small(clients=20, dim=8, threshold=14, colluding=0.1, clip_norm=1.0, noise_multiplier=1.0, modulus_bits=32)
    assert sharing_noise(params, None) == 12
    for policy in (lenient(), lenient(colluding=0.0), lenient(colluding=0.3)):
        assert Client(0, params, policy)._sharing == 12


def test_who_trusts_fewer_users_than_share_the_noise_is_charged_for_less_of_it() -> None:
    params = small(clients=20, dim=8, threshold=14, clip_norm=1.0, noise_multiplier=1.0, modulus_bits=32)
    assert params.mechanism is not None and sharing_noise(params, None) == 14
    cost = params.mechanism.cost
    assert lenient(colluding=0.0).cost(params) == cost
    assert lenient(colluding=0.3).cost(params).rho == pytest.approx(cost.rho * 14 / 8, rel=0.02)


def test_a_budget_takes_a_ledger() -> None:
    """In memory, every run would begin with all of it."""
    policy = lenient(max_epsilon=20.0, clip_norm=1.0, delta=DELTA)
    with pytest.raises(InvalidInput, match="ledger must be given with a roster or a privacy budget"):
        Client(0, NOISY, policy)
    Client(0, NOISY, policy, ledger=MemoryLedger())


def test_delta_must_pay_for_the_groups_of_many_runs() -> None:
    Policy(max_epsilon=8.0, delta=1e-5, failure_log2=-24.0)
    with pytest.raises(InvalidInput, match=r"delta must be from 2\^-13\.4, 100 times the chance"):
        Policy(max_epsilon=8.0, delta=1e-5, failure_log2=-20.0)


def test_the_largest_budget_is_25() -> None:
    assert Policy(max_epsilon=25.0).max_epsilon == 25.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 25.1])
def test_a_budget_that_means_nothing_is_refused_by_name(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="max_epsilon must be above 0 and at most 25"):
        Policy(max_epsilon=epsilon)


def test_the_round_beyond_the_budget_is_refused_before_anything_is_trained() -> None:
    run = Run(NOISY, policy=policy_for(2))
    run.round()
    run.round()
    run.begin()
    for ask in (
        lambda client, header: client.accept(header),
        lambda client, header: client.upload(header, np.zeros(8)),
        lambda client, header: client.handle(header, lambda: pytest.fail("it was trained")),
    ):
        with pytest.raises(PrivacyBudgetExhausted, match="would spend epsilon"):
            ask(run.clients[0], run.inbox[0])


def test_a_budget_that_another_run_spends_meanwhile_is_missing() -> None:
    """Between the header and the upload; the ledger is that of all runs on this data."""
    run = Run(NOISY, policy=policy_for(1)).begin()
    run.clients[0].accept(run.inbox[0])
    run.ledgers[0]._spent = run.policy.cost(NOISY)
    with pytest.raises(PrivacyBudgetExhausted):
        run.clients[0].upload(run.inbox[0], np.zeros(8))


def test_in_memory_an_answer_that_counts_on_an_older_sum_is_refused() -> None:
    ledger, cost = MemoryLedger(), Cost(0.5, 0.25)
    ledger.record(Entry(1, 1), _Nothing(), Spending(Cost(), cost))  # type: ignore[arg-type]
    with pytest.raises(AlreadyAnswered):
        ledger.record(Entry(2, 1), _Nothing(), Spending(Cost(), cost))  # type: ignore[arg-type]
    assert (ledger.last(), ledger.spent()) == (Entry(1, 1), cost)
    ledger.record(Entry(2, 1), _Nothing(), Spending(cost, cost))  # type: ignore[arg-type]
    assert ledger.spent() == cost.times(2)


def test_the_file_adds_up_what_runs_and_users_spend(tmp_path: Path) -> None:
    first, second = (SqliteLedger(tmp_path / "ledger", run, 0) for run in (b"a", b"b"))
    cost = Cost(0.5, 0.25)
    first.record(Entry(1, 1), _Nothing(), Spending(Cost(), cost))  # type: ignore[arg-type]
    assert first.spent() == second.spent() == cost
    with pytest.raises(AlreadyAnswered):
        second.record(Entry(1, 1), _Nothing(), Spending(Cost(), cost))  # type: ignore[arg-type]
    assert second.last() == Entry(), "nothing is written of an answer that counts on an older sum"
    second.record(Entry(1, 1), _Nothing(), Spending(cost, cost))  # type: ignore[arg-type]
    assert first.spent() == cost.times(2)
    first.record(Entry(2, 1), _Nothing(), Spending(Cost(), Cost()))  # type: ignore[arg-type]
    assert first.last().version == 2, "what costs nothing counts on nothing"


class _Nothing:
    """A step that changes nothing."""

    def changes(self) -> dict[str, bytes | None]:
        return {}

    def dropped(self) -> list[object]:
        return []
