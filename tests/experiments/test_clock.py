"""The wall clock of one round: its parts, and what the paper's speed-ups would take."""

from __future__ import annotations

import pytest

from experiments.clock.config import SCALES
from experiments.clock.plot import Split, compare, computing_for, split
from experiments.clock.run import literal


def entry(system: str, seconds: float, upload: float) -> tuple[dict[str, object], dict[str, object]]:
    about = {"figures": ["fig3"], "model": "m", "clients": 100, "system": system, "dim": 1000}
    numbers = {
        "sent_bytes": upload,
        "received_bytes": 0.0,
        "model_bytes": 4000,
        "paper_upload_bytes": upload,
        "exchanges": 2,
    }
    return about | numbers, about | {"training": 1.0, "client": seconds, "server": 2 * seconds}


@pytest.fixture
def result() -> dict[str, object]:
    entries = [entry("SecAgg", 0.5, 4000.0), entry("pairwise", 0.1, 500.0)]
    return {
        "configuration": {"bandwidth_mbit": 0.1, "latency_ms": 20.0, "dropout": 0.3},
        "numbers": {"rounds": [numbers for numbers, _ in entries]},
        "timings": {"rounds": [timing for _, timing in entries]},
    }


def test_a_round_is_training_protocol_transfer_and_latency(result: dict[str, object]) -> None:
    assert split(result, 0) == pytest.approx(Split(1.0, 0.5, 1.0, 8 * 8000 / 1e5, 0.08))


def test_the_speed_up_of_equal_rounds_stands_beside_the_papers(result: dict[str, object]) -> None:
    row = next(row for row in compare(result) if "pairwise: faster" in row.what)
    assert row.paper == "1.13×"
    assert row.ours == f"{split(result, 0).total / split(result, 1).total:.2f}×"


@pytest.mark.parametrize(("speedup", "both_ways"), [(1.13, True), (1.2, True), (1.8, False)])
def test_the_computing_that_a_claim_takes_gives_the_claim(speedup: float, both_ways: bool) -> None:
    computing = computing_for(speedup, 0.1265, both_ways)
    assert computing is not None
    sparse = (1 + 0.1265) / 2 if both_ways else 0.1265
    assert (computing + 1) / (computing + sparse) == pytest.approx(speedup)


def test_no_computing_gives_more_than_transfer_alone_would_save() -> None:
    assert computing_for(1.8, 0.1265, both_ways=True) is None


def test_default_settings_have_the_papers_largest_network_at_100_users() -> None:
    largest = SCALES["default"].settings[-1]
    assert (largest.model, largest.clients) == ("mnist-cnn", 100)


def test_words_for_every_coordinate_are_charged_for_every_pair() -> None:
    found = {
        "numbers": {"pairs_of_a_user": 99, "pairs_of_the_server": 2100},
        "timings": {"client": 1.0, "server": 2.0, "words_of_a_pair": 0.01},
    }
    timings = literal(found)["timings"]
    assert (timings["client"], timings["server"]) == pytest.approx((1.99, 23.0))
