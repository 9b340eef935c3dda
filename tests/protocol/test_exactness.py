"""The aggregate equals the plain sum of the survivors' quantised values, or the round fails with a typed error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from protocol.rounds import LENIENT, identities, updates
from sparsesecagg.simulate import InProcessRun, Outcome, run_round
from sparsesecagg.simulate.simulation import entropy_of_run
from sparsesecagg.errors import InvalidInput, RoundRefused, ThresholdNotMet, TooLittleOpened
from sparsesecagg.protocol import STAGES, Parameters, Stage

TYPED = (ThresholdNotMet, TooLittleOpened, RoundRefused)


@st.composite
def runs(draw: st.DrawFn) -> Parameters:
    """Draw parameters of a run: any pattern, any groups, any word."""
    clients = draw(st.integers(3, 18))
    pattern = draw(st.sampled_from(["full", "pairwise", "committee", "committee"]))
    settings: dict[str, Any] = {
        "clients": clients,
        "dim": draw(st.one_of(st.integers(1, 30), st.integers(1, 1500))),
        "pattern": pattern,
        "modulus_bits": draw(st.integers(4, 32)),
        "clip": draw(st.floats(0.01, 100.0)),
        "max_weight": 0 if pattern == "pairwise" else draw(st.sampled_from([0, 1, 7, 100_000])),
        "min_survivors": draw(st.integers(1, 2)),
        "confirm": draw(st.booleans()),
        "dropout": 0.49,
    }
    if pattern == "committee":
        committees = draw(st.integers(1, clients // 3))
        settings |= {"committees": committees, "pods": draw(st.integers(1, committees))}
        settings["served"] = draw(st.integers(1, committees))
    else:
        settings["alpha"] = draw(st.floats(0.01, 1.0))
        settings["neighbours"] = draw(st.one_of(st.none(), st.integers(2, 17)))
    try:
        return Parameters.create(**settings)
    except InvalidInput as problem:
        assert problem.option == "modulus_bits"
        return Parameters.create(**{**settings, "modulus_bits": 32})


def check(params: Parameters, outcome: Outcome, weights: list[int] | None, committees: dict[int, int]) -> None:
    """Assert that a result says what is true about who is in it."""
    result = outcome.result
    assert outcome.exact
    if params.pattern == "pairwise":
        return
    contributors = np.zeros(params.slices.count, np.int64)
    weight = np.zeros(params.slices.count, np.int64)
    for user in result.survivors:
        if committees[user] not in result.lost:
            numbers = params.slices.of(committees[user], result.round_number)
            contributors[numbers] += 1
            weight[numbers] += 1 if weights is None else weights[user]
    assert np.array_equal(result.contributors_per_slice, contributors)
    if weights is not None:
        assert np.array_equal(result.weight_per_slice, weight)  # type: ignore[arg-type]
    assert not result.total[~result.updated].any()
    if not result.lost:
        assert result.clipped == outcome.clipped


def committees_of(run: InProcessRun) -> dict[int, int]:
    """The committee of each user."""
    return {
        int(pod.users[place]): pod.first + number
        for pod in run.server.groups.pods
        for number, places in enumerate(pod.committees)
        for place in places
    }


@settings(max_examples=80)
@given(runs(), st.data())
def test_every_round_of_a_run_is_exact_or_fails_with_a_typed_error(params: Parameters, data: st.DataObject) -> None:
    """Whatever the settings, and whoever drops out at whatever stage of whatever round."""
    seed = data.draw(st.integers(0, 2**32))
    users = st.integers(0, params.clients - 1)
    spare = params.clients - params.threshold if params.pods == 1 and not params.neighbours else params.clients // 3
    rng = np.random.default_rng(seed)
    try:
        run = InProcessRun(
            params,
            policy=LENIENT,
            entropy_of=entropy_of_run(seed),
            absent=data.draw(st.sets(users, max_size=spare // 2)),
            late=data.draw(st.sets(users, max_size=spare // 2)),
        )
    except ThresholdNotMet:
        event("set-up failed")
        return
    for number in range(data.draw(st.integers(1, 4))):
        drops = data.draw(st.dictionaries(users, st.sampled_from(STAGES[2:]), max_size=spare))
        weights = rng.integers(0, params.max_weight + 1, params.clients).tolist() if params.max_weight else None
        try:
            outcome = run.round(updates(params, seed + number), weights=weights, drops=drops)
        except TYPED as failure:
            event(type(failure).__name__)
            assert run.server.result is None
            continue
        event(f"{params.pattern}, exact")
        check(params, outcome, weights, committees_of(run))


@pytest.mark.parametrize("bits", range(4, 33))
def test_words_of_every_width_are_exact(bits: int) -> None:
    params = Parameters.create(clients=12, dim=101, committees=3, pods=1, modulus_bits=bits, max_weight=0)
    run = InProcessRun(params, entropy_of=entropy_of_run(bits))
    for _ in range(2):
        assert run.round(updates(params, bits), drops={3: Stage.UPLOAD, 7: Stage.UNMASK}).exact


@pytest.mark.parametrize("stage", [Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK])
@pytest.mark.parametrize("pattern", ["full", "pairwise", "committee"])
@pytest.mark.parametrize("clients", [4, 9])
def test_exactly_n_minus_t_may_go_and_one_more_fails(clients: int, pattern: str, stage: Stage) -> None:
    """At the threshold the sum is exact; one user fewer and there is no sum at all."""
    params = Parameters.create(clients=clients, dim=50, pattern=pattern, min_survivors=1)
    allowed = clients - params.threshold
    outcome = run_round(params, updates(params), drops=dict.fromkeys(range(allowed), stage), policy=LENIENT)
    assert outcome.exact
    with pytest.raises(ThresholdNotMet) as failure:
        run_round(params, updates(params), drops=dict.fromkeys(range(allowed + 1), stage), policy=LENIENT)
    assert failure.value.survivors <= params.threshold - 1
    assert failure.value.needed == params.threshold


@pytest.mark.parametrize("pattern", ["full", "pairwise", "committee"])
def test_authenticated_rounds_are_exact_too(pattern: str) -> None:
    people = identities(12)
    groups: dict[str, Any] = {"committees": 3} if pattern == "committee" else {}
    params = Parameters.create(
        clients=12, dim=100, pattern=pattern, min_survivors=1, roster_digest=people[0].roster.digest, **groups
    )
    run = InProcessRun(params, policy=LENIENT, identities=people)
    outcome = run.round(updates(params), drops={1: Stage.UPLOAD, 5: Stage.CONFIRM, 8: Stage.UNMASK})
    assert outcome.exact
    assert outcome.result.dropped == {"SHARE_KEYS": 0, "UPLOAD": 1, "CONFIRM": 1, "UNMASK": 1}
    outcome = run.round(updates(params))
    assert outcome.exact
    assert outcome.result.survivors == tuple(range(12))


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([8, 12, 16, 24, 32]), st.sampled_from([1, 3]))
def test_the_weighted_mean_is_right_to_quantisation_error(seed: int, bits: int, committees: int) -> None:
    """mean = Σ w·y / Σ w over each slice's survivors, off by at most one quantisation step per contributor."""
    rng = np.random.default_rng(seed)
    params = Parameters.create(
        clients=9, dim=60, committees=committees, modulus_bits=bits, max_weight=500, min_survivors=1, clip=2.0
    )
    weights = rng.integers(1, 501, 9).tolist()
    vectors = [rng.uniform(-2, 2, 60).astype(np.float32) for _ in range(9)]
    run = InProcessRun(params, entropy_of=entropy_of_run(seed), policy=LENIENT)
    result = run.round(vectors, weights=weights).result
    where = committees_of(run)
    total = params.slices.spread(result.weight_per_slice)  # type: ignore[arg-type]
    # One rounding step is 1/c in units of weight/max_weight · y.
    bound = result.contributors * 500 / params.quantizer.scale / total + 1e-5
    for committee in range(committees):
        members = [user for user in range(9) if where[user] == committee]
        expected = np.average(np.stack([vectors[u] for u in members]), axis=0, weights=[weights[u] for u in members])
        for number in params.slices.of(committee, 1):
            start, stop = params.slices.bounds(number)
            assert (np.abs(result.mean() - expected)[start:stop] <= bound[start:stop]).all()


def test_committees_of_ten_with_thirty_per_cent_dropouts() -> None:
    """Some committees are thin in some rounds; the others' sums are exact, and everything is updated in the end."""
    params = Parameters.create(clients=100, dim=200, alpha=0.1, committee_size=10, dropout=0.3, min_survivors=6)
    run = InProcessRun(params, entropy_of=entropy_of_run(1))
    rng = np.random.default_rng(1)
    lost, covered = 0, np.zeros(200, np.bool_)
    for number in range(4):
        silent = rng.choice(100, 30, replace=False).tolist()
        outcome = run.round(updates(params, number), drops=dict.fromkeys(silent, Stage.UPLOAD))
        check(params, outcome, None, committees_of(run))
        lost += len(outcome.result.lost)
        covered |= outcome.result.updated
    assert 0 < lost < 20
    assert covered.mean() > 0.9
