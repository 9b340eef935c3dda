"""The audit over rounds: its figures against brute force, theory and the bound; its counts, its refusals."""

import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput, ProtocolError
from sparsesecagg.lab.audit.audit import run_audit
from sparsesecagg.lab.audit.audit_report import AuditSettings
from sparsesecagg.lab.audit.theory import pairwise_revealed_fraction
from sparsesecagg.protocol import RoundOptions, Stage

# Figures of a handful of rounds lie within five standard errors of the truth but for one seed in a million.
FIVE_SIGMA = 5


def settings(pattern="sliced", *, clients=20, dim=200, alpha=0.3, dropout=0.2, colluding=0.0, rounds=4, **options):
    own = {
        name: options.pop(name) for name in ("seed", "runs", "server", "drop_at", "authenticated") if name in options
    }
    asked = RoundOptions(pattern, 1.0 if pattern == "full" else alpha, dropout=dropout, **options)
    return AuditSettings(clients, dim, asked, colluding, rounds, **own)


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


@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "colluding", "precision"), [(0.0, 0.4, 0.12), (0.2, 0.2, 0.35)])
def test_pairwise_reveals_what_a_brute_force_simulation_of_the_graph_says(
    dropout: float, colluding: float, precision: float
) -> None:
    asked = settings("pairwise", dropout=dropout, colluding=colluding, rounds=12)
    report, rng = run_audit(asked), np.random.default_rng(1)
    drawn = np.array([simulated_graph(20, 200, 0.3, dropout, asked.colluders, rng) for _ in range(40)])
    error = FIVE_SIGMA * drawn.std(axis=0) / np.sqrt(12)
    assert np.all(error < precision)
    assert abs(report.revealed_fraction - drawn[:, 0].mean()) < error[0] + 0.01
    assert abs(report.histogram[2] - drawn[:, 1].mean()) < error[1] + 0.01
    assert report.tally.read.correct == report.tally.read.count == report.tally.by_size[1]
    assert asked.expected_fraction == pytest.approx(pairwise_revealed_fraction(0.3, 20, dropout, colluding))


@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_slices_reveal_nothing_to_a_semi_honest_server_with_a_third_of_the_users(alpha: float) -> None:
    report = run_audit(settings(clients=30, alpha=alpha, dropout=0.3, colluding=1 / 3, rounds=3))
    assert report.revealed_fraction == report.unmasked_fraction == 0
    assert report.smallest_component >= report.settings.promised == report.settings.params.threshold - 10
    assert report.settings.expected_fraction == 0


@pytest.mark.slow
@pytest.mark.parametrize("clients", [12, 30])
@pytest.mark.parametrize("authenticated", [False, True])
def test_a_malicious_server_leaves_fewer_in_a_sum_but_not_fewer_than_promised(
    clients: int, authenticated: bool
) -> None:
    asked = {
        "clients": clients,
        "dim": 50,
        "dropout": 0.1,
        "colluding": 0.1,
        "rounds": 3,
        "threshold": clients * 2 // 3,
    }
    lying = run_audit(settings(**asked, server="malicious", authenticated=authenticated))
    honest = run_audit(settings(**asked))
    assert lying.revealed_fraction == 0
    assert honest.smallest_component > lying.smallest_component >= lying.settings.promised > 1


def test_a_malicious_server_reads_everybody_where_the_threshold_is_too_low() -> None:
    """2t ≤ P + c: the control of the bound."""
    report = run_audit(settings(clients=20, dim=40, dropout=0.0, colluding=0.3, threshold=13, server="malicious"))
    assert report.settings.promised == 0
    assert report.revealed_fraction == 1
    assert report.tally.read.correct == report.tally.read.count > 0


def test_groups_of_their_own_are_audited_apart() -> None:
    report = run_audit(settings(clients=24, dim=40, alpha=0.5, dropout=0.1, group_size=8, rounds=2))
    assert report.settings.params.groups == 3
    assert report.tally.sums <= 6
    assert max(report.tally.by_size) <= 8
    assert report.contributors_mean == pytest.approx(report.settings.claimed_anonymity, rel=0.4)


def test_a_coordinate_that_is_sent_has_as_many_contributors_as_the_group_has_honest_survivors() -> None:
    report = run_audit(settings(dropout=0.0, colluding=0.25, rounds=1))
    assert report.contributors_mean == report.settings.claimed_anonymity == 15
    assert report.singled_out_fraction == 0


@pytest.mark.slow
def test_who_misses_rounds_altogether_is_missing_more_often() -> None:
    """Without packages of later rounds a user is present with (1 − θ²)(1 − θ), otherwise with 1 − θ."""
    late, absent = (
        run_audit(settings("full", dropout=0.3, rounds=15, dim=1, threshold=11, drop_at=stage))
        for stage in (Stage.UPLOAD, Stage.SHARE_KEYS)
    )
    # A round with fewer than eleven left is not opened, so what is opened is a little above the mean.
    present = [report.tally.values / 20 / report.tally.rounds for report in (late, absent)]
    assert present[0] == pytest.approx(0.7, abs=0.14)
    assert present[1] == pytest.approx(0.91 * 0.7, abs=0.14)
    assert present[1] < present[0]


def test_a_setting_of_which_nothing_opens_fails_with_the_reason() -> None:
    with pytest.raises(ProtocolError, match=r"none of 1 rounds could be opened: .*20"):
        run_audit(settings(dropout=0.45, rounds=1, threshold=20))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_report_in_any_number_of_processes() -> None:
    asked = {"rounds": 1, "runs": 2, "dim": 50}
    told: list[int] = []
    one = run_audit(settings("pairwise", seed=5, **asked), 1, told.append)
    assert told == [1, 2]
    assert one.tally == run_audit(settings("pairwise", seed=5, **asked), workers=2).tally
    assert one.tally != run_audit(settings("pairwise", seed=6, **asked)).tally


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"colluding": 1.0}, "colluding"),
        ({"colluding": -0.1}, "colluding"),
        ({"rounds": 0}, "rounds"),
        ({"colluding": 0.99}, "colluding"),
        ({"runs": 0}, "runs"),
        ({"server": "kind"}, "server"),
        ({"server": "malicious", "neighbours": 4}, "server"),
        ({"drop_at": Stage.UNMASK}, "drop_at"),
    ],
)
def test_settings_that_leave_nothing_to_attack_are_refused(change, option: str) -> None:
    with pytest.raises(InvalidInput) as problem:
        settings("full", **change)
    assert problem.value.option == option


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_ctrl_c_ends_the_runs_that_are_under_way() -> None:
    """Each of them would take minutes."""

    def press() -> None:
        while len(multiprocessing.active_children()) < 2:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # In the background it may be ignored.
    try:
        threading.Thread(target=press).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run_audit(settings(rounds=10**5, runs=4), workers=2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 30
    assert not multiprocessing.active_children()
