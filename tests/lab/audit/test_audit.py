"""The audit over rounds: its figures against brute force and theory, its counts, its refusals."""

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput, ProtocolError
from sparsesecagg.lab.audit.audit import AuditSettings, run_audit
from sparsesecagg.lab.audit.theory import committee_revealed_fraction, pairwise_revealed_fraction
from sparsesecagg.protocol import Parameters, Stage

# Figures of a handful of rounds lie within five standard errors of the truth but for one seed in a million.
FIVE_SIGMA = 5


def settings(pattern, *, clients=20, dim=200, alpha=0.3, dropout=0.2, colluding=0.0, rounds=4, seed=0, **options):
    asked = {name: options.pop(name) for name in ("runs", "server", "drop_at") if name in options}
    alpha = None if pattern == "full" else alpha
    params = Parameters.create(clients=clients, dim=dim, pattern=pattern, alpha=alpha, dropout=dropout, **options)
    return AuditSettings(params, colluding, rounds, seed, **asked)


def simulated_graph(clients, dim, alpha, dropout, colluders, rng):
    """Draw one round's mask graphs bit by bit; return the shares of values in components of one and of two."""
    honest = np.ones(clients, bool)
    honest[rng.permutation(clients)[:colluders]] = False
    counted = honest & (rng.random(clients) >= dropout)
    bits = np.triu(rng.random((dim, clients, clients)) < alpha / (clients - 1), 1)
    bits |= bits.transpose(0, 2, 1)
    sends = bits.any(axis=2) & counted
    among = bits & counted[None, None, :] & counted[None, :, None]
    degree = among.sum(axis=2)
    partner_degree = (among * degree[:, None, :]).sum(axis=2)
    alone = sends & (degree == 0)
    couple = sends & (degree == 1) & (partner_degree == 1)
    return alone.sum() / sends.sum(), couple.sum() / sends.sum()


@pytest.fixture(scope="module")
def pairwise():
    return run_audit(settings("pairwise", colluding=0.2, rounds=12))


@pytest.mark.parametrize(("dropout", "colluding", "precision"), [(0.0, 0.4, 0.12), (0.2, 0.2, 0.35)])
def test_pairwise_reveals_what_a_brute_force_simulation_of_the_graph_says(
    dropout: float, colluding: float, precision: float
) -> None:
    """The number of dropouts differs from round to round, and with it the figures: hence the two precisions."""
    report = run_audit(settings("pairwise", dropout=dropout, colluding=colluding, rounds=12))
    rng = np.random.default_rng(7)
    drawn = np.array([simulated_graph(20, 200, 0.3, dropout, round(20 * colluding), rng) for _ in range(300)])
    error = FIVE_SIGMA * drawn.std(axis=0) / np.sqrt(12)
    found = np.array([report.revealed_fraction, report.histogram[2]])
    assert np.all(np.abs(found - drawn.mean(axis=0)) < error)
    assert np.all(error < precision * found)


def test_pairwise_reveals_what_theory_says(pairwise) -> None:
    assert pairwise.revealed_fraction == pytest.approx(pairwise_revealed_fraction(0.3, 20, 0.2, 0.2), rel=0.2)


def test_every_value_and_every_pair_that_the_attacker_claims_is_right(pairwise) -> None:
    tally = pairwise.tally
    assert tally.read.correct == tally.read.count > 1000
    assert tally.pairs.correct == tally.pairs.count > 1000
    assert tally.wrong_values < 1e-3


def test_the_attacker_reads_all_that_the_mask_graph_leaves_bare(pairwise) -> None:
    assert pairwise.revealed_fraction == pairwise.unmasked_fraction


def test_the_paper_counts_far_fewer_values_as_singled_out_than_are_revealed(pairwise) -> None:
    assert pairwise.singled_out_fraction < pairwise.revealed_fraction / 5


def test_contributors_are_as_many_as_the_paper_promises_although_values_hide_among_fewer(pairwise) -> None:
    assert pairwise.contributors_mean == pytest.approx(pairwise.settings.claimed_anonymity, rel=0.15)
    assert pairwise.mean_component < 0.6 * pairwise.contributors_mean


def test_histogram_fractions_add_up_to_one(pairwise) -> None:
    assert sum(pairwise.histogram.values()) == pytest.approx(1)
    assert min(pairwise.histogram) == pairwise.smallest_component == 1


@pytest.mark.parametrize("pattern", ["committee", "full"])
def test_public_patterns_reveal_no_single_value_while_honest_users_are_many(pattern: str) -> None:
    report = run_audit(settings(pattern, alpha=0.5, colluding=0.2))
    assert report.revealed_fraction == report.unmasked_fraction == 0
    assert report.smallest_component > 1
    assert report.tally.sums == (4 * 2 if pattern == "committee" else 4)


def test_a_thin_committee_reveals_values_and_all_of_them_are_read() -> None:
    report = run_audit(settings("committee", alpha=0.2, colluding=0.4, rounds=8))
    tally = report.tally
    assert tally.read.correct == tally.read.count == tally.by_size[1] > 0


def test_committees_reveal_what_theory_says_on_average_over_many_draws() -> None:
    """A run draws its groups once, so runs are the sample: one standard error is their spread over the root of 20."""
    reports = [
        run_audit(settings("committee", alpha=0.25, dropout=0.3, colluding=0.4, rounds=2, dim=8, seed=seed))
        for seed in range(20)
    ]
    values = np.array([report.tally.values for report in reports])
    read = np.array([report.tally.by_size[1] for report in reports])
    expected = reports[0].settings.expected_fraction
    assert expected == committee_revealed_fraction(20, 4, 0.3, 0.4, min_survivors=3)
    error = np.std(read - expected * values) / np.sqrt(20) / values.mean()
    assert abs(read.sum() / values.sum() - expected) < FIVE_SIGMA * error
    assert FIVE_SIGMA * error < expected


def test_committees_that_are_too_thin_lose_their_sums_and_nothing_else() -> None:
    tally = run_audit(settings("committee", alpha=0.25, dropout=0.3, rounds=8, dim=40)).tally
    assert (tally.rounds, tally.unopened) == (8, 0)
    missing = 8 * 4 - tally.sums
    # Each of those committees had at most two survivors of the three that are needed, with ten values each.
    assert 0 < tally.closed <= missing * 2 * 10
    assert min(tally.by_size) == 3


def test_who_misses_rounds_altogether_is_missing_more_often() -> None:
    """Without packages of later rounds a user is present with (1 − θ²)(1 − θ), otherwise with 1 − θ."""
    late, absent = (
        run_audit(settings("full", dropout=0.3, rounds=15, dim=1, threshold=11, drop_at=stage))
        for stage in (Stage.UPLOAD, Stage.SHARE_KEYS)
    )
    present = [report.tally.values / 20 / report.tally.rounds for report in (late, absent)]
    # 15 · 20 draws each: five standard errors are 0.14.
    assert present[0] == pytest.approx(0.7, abs=0.14)
    assert present[1] == pytest.approx(0.91 * 0.7, abs=0.14)
    assert present[1] < present[0]


def test_a_setting_of_which_nothing_opens_fails_with_the_reason() -> None:
    with pytest.raises(ProtocolError, match=r"none of 1 rounds could be opened: .*survivors, \d are needed at UPLOAD"):
        run_audit(settings("committee", alpha=0.3, dropout=0.45, rounds=1, min_survivors=6))


def test_private_weights_are_never_read_while_honest_users_are_many() -> None:
    report = run_audit(settings("committee", alpha=0.5, colluding=0.2, rounds=2, max_weight=500))
    assert report.tally.weights.count == 0


def test_the_same_seed_gives_the_same_report_in_any_number_of_processes() -> None:
    one = run_audit(settings("pairwise", rounds=1, runs=2, dim=50, seed=5))
    assert one == run_audit(settings("pairwise", rounds=1, runs=2, dim=50, seed=5), workers=2)
    assert one.tally != run_audit(settings("pairwise", rounds=1, runs=2, dim=50, seed=6)).tally


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_is_told_after_each_round(workers: int) -> None:
    told: list[int] = []
    run_audit(settings("full", rounds=2, runs=2, dim=10, clients=5), workers, told.append)
    assert told == [1, 2, 3, 4]


def test_runs_have_groups_and_colluders_of_their_own() -> None:
    one, two = (
        run_audit(settings("committee", alpha=0.5, colluding=0.4, rounds=2, runs=runs, dim=20)).tally for runs in (1, 2)
    )
    assert (one.rounds, two.rounds) == (2, 4)
    assert two.by_size != one.by_size + one.by_size


def test_an_authenticated_run_is_audited_with_its_roster() -> None:
    params = {"roster_digest": bytes([1]) * 32, "colluders": 2}
    report = run_audit(settings("committee", clients=12, alpha=0.5, colluding=0.15, rounds=2, dim=20, **params))
    assert report.as_json()["authenticated"]
    assert report.tally.rounds == 2
    assert report.revealed_fraction == 0


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"colluding": 1.0}, "colluding"),
        ({"colluding": -0.1}, "colluding"),
        ({"rounds": 0}, "rounds"),
        ({"colluding": 0.99}, "colluding"),
        ({"runs": 0}, "runs"),
        ({"server": "kind"}, "server"),
        ({"server": "lying", "neighbours": 4}, "server"),
        ({"drop_at": Stage.UNMASK}, "drop_at"),
    ],
)
def test_settings_that_leave_nothing_to_attack_are_refused(change, option: str) -> None:
    with pytest.raises(InvalidInput) as problem:
        settings("full", **change)
    assert problem.value.option == option
