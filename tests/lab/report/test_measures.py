"""What a run came to, checked against figures worked out by hand."""

from pathlib import Path

import pytest

from lab.report.synthetic import DIM, write_run
from sparsesecagg.lab.learning.aggregation import RoundLine
from sparsesecagg.lab.report.measures import (
    contributors_distribution,
    cumulative_sent,
    mean_by_stage,
    measure,
    measured,
)
from sparsesecagg.lab.report.records import Run, read_run


def run_of(*rounds: RoundLine, **config: object) -> Run:
    """Return a run with these rounds."""
    return Run(name="x", config=config, partition=None, rounds=rounds)


GOOD = RoundLine(
    round=1,
    accuracy=0.5,
    upload_bytes=100,
    sent_bytes={"SHARE_KEYS": 40, "UPLOAD": 100, "total": 140},
    client_seconds={"UPLOAD": 0.5},
    server_seconds={"UPLOAD": 0.25, "UNMASK": 0.25},
    training_seconds=1.0,
    transfer_seconds=0.125,
)
FAILED = RoundLine(round=2, status="failed", reason="too few", accuracy=0.5, upload_bytes=60, sent_bytes={"UPLOAD": 60})


def test_means_leave_failed_rounds_out_and_totals_count_them() -> None:
    """A failed round cost bytes, but is no measure of what a round costs."""
    measures = measure(run_of(GOOD, FAILED))
    assert (measures.rounds, measures.failed) == (2, 1)
    assert (measures.upload_per_round, measures.sent_per_round) == (100, 140)
    assert measures.sent_total == 200


def test_computing_and_transfer_are_never_added() -> None:
    """Computing is training, the client and the server; the modelled transfer is a figure of its own."""
    measures = measure(run_of(GOOD))
    assert measures.computing_seconds == 1.0 + 0.5 + 0.5
    assert measures.transfer_seconds == 0.125


def test_running_sums_grow_round_by_round() -> None:
    """A failed round counts too."""
    run = run_of(GOOD, FAILED)
    assert cumulative_sent(run) == [140, 200]


def test_a_message_without_stages_is_the_upload() -> None:
    """Plain averaging sends one message."""
    assert cumulative_sent(run_of(RoundLine(round=1, upload_bytes=7))) == [7]


def test_secagg_is_measured_where_it_was_run(tmp_path: Path) -> None:
    """Its own figures are the yardstick."""
    runs = [read_run(write_run(tmp_path / name, name, rounds=2)) for name in ("sliced", "secagg")]
    sliced, secagg = measured(runs)
    assert (secagg.upload_ratio, secagg.sent_ratio) == (1, 1)
    assert sliced.upload_ratio == secagg.upload_per_round / sliced.upload_per_round
    assert sliced.sent_ratio == secagg.sent_per_round / sliced.sent_per_round


def test_secagg_is_computed_where_it_was_not(tmp_path: Path) -> None:
    """One 32-bit word for every parameter and a header; what it sends besides is not guessed."""
    (sliced,) = measured([read_run(write_run(tmp_path / "run", rounds=1))])
    assert sliced.upload_ratio == (64 + 4 * DIM) / sliced.upload_per_round
    assert sliced.sent_ratio is None


def test_without_a_model_size_there_is_no_yardstick() -> None:
    """Nothing is invented."""
    assert measured([run_of(GOOD)])[0].upload_ratio is None


@pytest.mark.parametrize(("target", "reached"), [(0.4, 1), (0.7, 3), (0.9, None), (None, None)])
def test_the_target_is_reached_in_the_first_round_that_has_it(target: float | None, reached: int | None) -> None:
    """Later rounds may fall below it again."""
    accuracies = (0.5, 0.6, 0.8, 0.3)
    rounds = [RoundLine(round=n, accuracy=a) for n, a in enumerate(accuracies, start=1)]
    assert measure(run_of(*rounds, target_accuracy=target)).reached_target_at == reached


def test_stages_are_averaged_and_absent_ones_left_out() -> None:
    """A stage that some rounds lack counts as zero there; one that all lack is no stage."""
    other = RoundLine(round=2, sent_bytes={"UPLOAD": 300, "total": 300})
    assert mean_by_stage(run_of(GOOD, other, FAILED), lambda r: r.sent_bytes) == {"SHARE_KEYS": 20, "UPLOAD": 200}


def test_contributors_are_averaged_over_the_rounds_that_recorded_them() -> None:
    """Fractions of coordinates by count, in order."""
    rounds = [
        RoundLine(round=1, contributors_histogram={"10": 0.5, "9": 0.5}),
        RoundLine(round=2, contributors_histogram={"9": 1.0}),
        RoundLine(round=3),
    ]
    assert contributors_distribution(run_of(*rounds)) == {9: 0.75, 10: 0.25}


def test_a_run_without_rounds_has_figures_too() -> None:
    """All of them empty."""
    measures = measure(run_of())
    assert (measures.accuracy, measures.rounds, measures.sent_total) == (None, 0, 0)


def test_what_a_user_receives_includes_the_model() -> None:
    """Keys, shares and requests, and the model on its way down; the steady state counts the exchanges."""
    first = RoundLine(round=1, received_bytes={"total": 50}, downlink_bytes=400, exchanges=4, coordinates_updated=1.0)
    later = RoundLine(round=2, received_bytes={"total": 30}, downlink_bytes=20, exchanges=2, coordinates_updated=0.8)
    measures = measure(run_of(first, later))
    assert (measures.received_per_round, measures.model_per_round) == (250, 210)
    assert measures.exchanges == 2 and measures.coordinates_updated == pytest.approx(0.9)
    assert measure(run_of(GOOD)).exchanges is None is measure(run_of(GOOD)).coordinates_updated
