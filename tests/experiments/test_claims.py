"""docs/reproduction.md: what is claimed, what came out, and the rules of the verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import figures_in_prose, publish
from experiments.claims import measured, page
from experiments.claims.claim import CANNOT_TELL, DIRECTION, EXACT, NEAR, NO, VERDICTS, compared, known
from experiments.common.experiment import NAMES
from experiments.common.summaries import Spread

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_committed_results() -> None:
    text = publish.DOCUMENT.read_text(encoding="utf-8")
    assert page.published(text, publish.RESULTS) == text, "run python -m experiments.publish"


def test_the_page_is_short_and_its_outcome_comes_first() -> None:
    lines = publish.DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert [line[:2] for line in lines[4:9]] == ["1.", "2.", "3.", "4.", "5."]


def test_what_was_not_measured_is_named_near_the_top() -> None:
    lines = publish.DOCUMENT.read_text(encoding="utf-8").splitlines()
    absent = [name for name in NAMES if not (publish.RESULTS / f"{name}.json").exists()]
    assert all(name in "\n".join(lines[:15]) for name in absent)


@pytest.mark.parametrize("path", figures_in_prose.PAGES, ids=lambda path: path.name)
def test_figures_in_prose_are_those_of_the_result_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert figures_in_prose.filled(text) == text, "run python -m experiments.publish"


def test_a_figure_is_found_by_keys_places_and_what_an_entry_has(tmp_path: Path) -> None:
    entries = [{"clients": 25, "alpha": 0.1000001, "share": 0.505}, {"clients": 50, "share": [1, 20_000]}]
    (tmp_path / "some.json").write_text(json.dumps({"numbers": entries}))
    assert figures_in_prose.figure("some: numbers[clients=25,alpha=0.1].share | percent 1", tmp_path) == "50.5 %"
    assert figures_in_prose.figure("some: numbers[1].share[1] | count", tmp_path) == "20,000"
    sentence = "about <!-- = some: numbers[0].share | times 3 -->7×<!-- . --> less"
    assert ">0.505×<" in figures_in_prose.filled(sentence, tmp_path)


def test_every_claim_has_a_verdict_of_a_known_kind_and_conditions() -> None:
    claims = [one for rows in page.tables(known(publish.RESULTS, NAMES)).values() for one in rows]
    assert len(claims) >= 16
    for one in claims:
        assert one.verdict.startswith(VERDICTS), one
        assert one.stated, one


def test_without_results_nothing_can_be_told(tmp_path: Path) -> None:
    claims = [one for rows in page.tables(known(tmp_path, NAMES)).values() for one in rows]
    assert all(one.verdict.startswith(CANNOT_TELL) for one in claims)
    assert {"Table 1", "Figure 3a", "Figure 5a", "Figure 6b"} <= {one.where for one in claims}


def test_a_figure_is_exact_near_in_the_same_direction_or_wrong() -> None:
    found = [compared(ours, 10.0) for ours in (10.05, 9.2, 7.0, 14.9, 6.0)]
    assert found == [EXACT, NEAR, DIRECTION, DIRECTION, NO]


def run(system: str, accuracy: list[float], **changes: Any) -> dict[str, Any]:
    """A run of 100 users with a model of 1,000 parameters that ends when it reaches 90 %."""
    reached = next((number for number, value in enumerate(accuracy, 1) if value >= 0.9), None)
    return {
        "clients": 100,
        "seed": 0,
        "system": system,
        "label": system,
        "normalisation": "expected" if system == "pairwise" else "observed",
        "lr": 0.01,
        "alpha": 1.0 if system == "secagg" else 0.1,
        "modulus_bits": 32,
        "dim": 1000,
        "uploads": [70] * len(accuracy),
        "effective_dropout": 0.3,
        "rounds": len(accuracy),
        "accuracy": accuracy,
        "reached_target_at": reached,
        "total_upload_bytes": {"secagg": 4000, "pairwise": 450, "sliced": 400}[system] * 70 * len(accuracy),
        "anonymity": {"in_every_sum": 18},
        **changes,
    }


@pytest.fixture
def result() -> dict[str, Any]:
    runs = [run("secagg", [0.8, 0.9]), run("pairwise", [0.8, 0.9]), run("sliced", [0.8, 0.9])]
    return {"complete": True, "configuration": {"training": {"target": 0.9}}, "numbers": {"runs": runs}}


def test_equal_rounds_save_what_one_round_saves_and_ours_stands_beside(result: dict[str, Any]) -> None:
    claim = next(one for one in measured.of_training({"fig5": result}) if one.where == "Figure 5a")
    assert claim.ours == "N=100: 7.9× (`sliced`, our messages: N=100, 32 bits 10.0×, T ≥ 18)"
    assert claim.verdict == NO
    assert "lr 0.01, θ = 0.30" in claim.condition


def test_results_that_are_not_complete_say_so(result: dict[str, Any]) -> None:
    (claim, *_) = [one for one in measured.of_training({"fig6": {**result, "complete": False}}) if "6a" in one.where]
    assert claim.condition.endswith("not complete")


def test_the_wall_clock_is_rounds_times_what_a_round_takes(result: dict[str, Any]) -> None:
    def entry(system: str, upload: float, server: float) -> tuple[dict[str, Any], dict[str, Any]]:
        about = {"figures": ["fig5", "fig6"], "model": "mnist-cnn", "clients": 100, "system": system, "dim": 1000}
        sizes = {"sent_bytes": upload, "received_bytes": 0, "model_bytes": 0, "exchanges": 0}
        return about | sizes, about | {"training": 2.0, "client": 0.0, "server": server}

    entries = [entry("SecAgg", 1e6, 4.0), entry("pairwise", 1e5, 0.0)]
    clock = {
        "configuration": {"bandwidth_mbit": 8.0, "latency_ms": 0.0},
        "numbers": {"rounds": [numbers for numbers, _ in entries]},
        "timings": {"rounds": [timing for _, timing in entries]},
    }
    iid, shards = (
        next(one for one in measured.of_the_clock({"fig5": result, "clock": clock}) if one.where == where)
        for where in ("Figure 5b", "Figure 6b")
    )
    # SecAgg 2 + 4 + 1 s, pairwise 2 + 0.1 s.
    assert iid.ours == "N=100, gaps: 3.33×"
    assert shards.ours == "N=100, gaps: 3.33× (equal rounds)"
    assert iid.verdict.startswith(CANNOT_TELL)


def test_non_iid_data_is_compared_after_the_same_rounds(result: dict[str, Any]) -> None:
    shards = {**result, "numbers": {"runs": [run("pairwise", [0.5, 0.85, 0.9])]}}
    assert measured.drops({"fig5": result, "fig6": shards}) == [(100, Spread(0.0, 0.0, 0.0))]
    later = {**result, "numbers": {"runs": [run("pairwise", [0.5, 0.93])]}}
    ((_, spread),) = measured.drops({"fig5": later, "fig6": shards})
    assert spread.median == pytest.approx(3.0)


def test_hypotheses_that_were_not_trained_show_what_a_round_saves() -> None:
    lines = measured.hypotheses({})
    assert any("H3: α = 0.025 | R × 17.9" in line for line in lines)
    assert all(line.endswith("| – |") for line in lines[2:])
