"""The summary: what is claimed, what came out, and the rules of the verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import figures_in_prose
from experiments.claims import others, page, training
from experiments.claims.claim import NOT_REPRODUCED, NOT_TESTABLE, REFUTED, REPRODUCED
from experiments.common.summaries import Spread

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", figures_in_prose.PAGES, ids=lambda path: path.name)
def test_figures_in_prose_are_those_of_the_result_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert figures_in_prose.filled(text) == text, "run python -m experiments.publish"


def test_the_page_on_the_weakness_takes_its_figures_from_results() -> None:
    text = (ROOT / "docs" / "weakness.md").read_text(encoding="utf-8")
    assert len(figures_in_prose.MARK.findall(text)) > 20


def test_a_figure_is_found_by_keys_places_and_what_an_entry_has(tmp_path: Path) -> None:
    entries = [{"clients": 25, "alpha": 0.1000001, "share": 0.505}, {"clients": 50, "share": [1, 20_000]}]
    (tmp_path / "some.json").write_text(json.dumps({"numbers": entries}))
    assert figures_in_prose.figure("some: numbers[clients=25,alpha=0.1].share | percent 1", tmp_path) == "50.5 %"
    assert figures_in_prose.figure("some: numbers[1].share[1] | count", tmp_path) == "20,000"
    sentence = "about <!-- = some: numbers[0].share | times 3 -->7×<!-- . --> less"
    assert ">0.505×<" in figures_in_prose.filled(sentence, tmp_path)


def test_every_claim_has_a_verdict_of_a_known_kind() -> None:
    claims = page.all_claims(ROOT / "results")
    assert len(claims) > 30
    for one in claims:
        assert one.verdict.startswith((REPRODUCED, NOT_REPRODUCED, REFUTED, NOT_TESTABLE, "not a claim")), one
        assert not one.verdict.startswith(NOT_TESTABLE) or ": " in one.verdict, "the reason is missing"


def test_a_missing_result_is_said_to_be_missing(tmp_path: Path) -> None:
    claims = page.all_claims(tmp_path)
    assert all(one.verdict.startswith(NOT_TESTABLE) for one in claims)
    assert {"Table 1", "Figure 3a", "Figure 5b", "Theorem 2", "Lemma 2"} <= {one.where for one in claims}


def test_a_ratio_is_reproduced_if_it_lies_in_the_range_give_or_take_a_tenth() -> None:
    spreads = [Spread(7.0, 6.5, 7.2), None]
    assert training.within(7.8, spreads)
    assert not training.within(8.0, spreads)
    assert training.within(5.9, spreads)
    assert not training.within(17.9, spreads)


def runs(system: str, normalisation: str, accuracy: list[float], **changes: Any) -> dict[str, Any]:
    reached = next((number for number, value in enumerate(accuracy, 1) if value >= 0.9), None)
    return {
        "clients": 100,
        "seed": 0,
        "system": system,
        "label": f"{system} {normalisation}",
        "normalisation": normalisation,
        "lr": 0.01,
        "alpha": 0.1,
        "dim": 1000,
        "uploads": [70] * len(accuracy),
        "rounds": len(accuracy),
        "accuracy": accuracy,
        "reached_target_at": reached,
        **changes,
    }


@pytest.fixture
def result() -> dict[str, Any]:
    return {
        "complete": True,
        "seeds": [0],
        "configuration": {"training": {"target": 0.9}},
        "numbers": {
            "runs": [
                runs("secagg", "observed", [0.8, 0.9]),
                runs("pairwise", "expected", [0.8, 0.9]),
                runs("secagg", "everybody", [0.7, 0.8, 0.85, 0.88, 0.9]),
            ]
        },
    }


def test_equal_rounds_save_what_one_round_saves(result: dict[str, Any]) -> None:
    claims = training.claims({"fig5": result})
    claim = next(one for one in claims if one.where == "Figure 5a" and "Hypo" not in one.what)
    assert claim.ours == "N=100: 7.9×"
    assert claim.verdict == NOT_REPRODUCED


def test_a_figure_that_comes_out_at_some_sizes_only_is_not_called_reproduced_without_them() -> None:
    low, near = Spread(5.8, 4.4, 5.9), Spread(7.9, 7.9, 7.9)
    assert training._where(7.8, [(25, low), (50, near), (75, None)]) == "reproduced at N = 50, not at 25"
    assert training._where(7.8, [(50, near)]) == REPRODUCED
    assert training._where(7.8, [(25, low)]) == NOT_REPRODUCED


def test_results_that_are_not_complete_say_how_many_seeds_there_are(result: dict[str, Any]) -> None:
    partial = {**result, "complete": False, "seeds": [0, 1, 2]}
    (claim,) = [one for one in training.claims({"fig6": partial}) if one.where == "Figure 6a" and "Hyp" not in one.what]
    assert claim.ours == "N=100: 7.9× (1 of 3 seeds begun, not all done)"


def test_a_secagg_that_takes_more_rounds_would_explain_the_papers_ratio(result: dict[str, Any]) -> None:
    (claim,) = [
        one for one in training.claims({"fig5": result}) if "Hypothesis" in one.what and one.where == "Figure 5a"
    ]
    assert claim.ours == "N=100: 19.8×"
    assert claim.verdict == "not a claim: would explain the paper's figure"


def test_the_wall_clock_is_rounds_times_what_a_round_takes(result: dict[str, Any]) -> None:
    def entry(system: str, upload: float, server: float) -> tuple[dict[str, Any], dict[str, Any]]:
        about = {"figures": ["fig5", "fig6"], "model": "mnist-cnn", "clients": 100, "system": system, "dim": 1000}
        sizes = {"sent_bytes": upload, "received_bytes": 0, "model_bytes": 0, "exchanges": 0}
        return about | sizes, about | {"training": 2.0, "client": 0.0, "server": server}

    entries = [entry("SecAgg", 1e6, 4.0), entry("pairwise", 1e5, 0.0), entry("committee", 1e5, 0.0)]
    clock = {
        "configuration": {"bandwidth_mbit": 8.0, "latency_ms": 0.0},
        "numbers": {"rounds": [numbers for numbers, _ in entries]},
        "timings": {"rounds": [timing for _, timing in entries]},
    }
    found = {"fig5": result, "clock": clock}
    claim, large = [one for one in training.claims(found) if one.where == "Figure 5b"]
    # SecAgg 2 + 4 + 1 s, pairwise 2 + 0.1 s, and the same number of rounds; without the server 3 / 2.1.
    assert claim.ours == "N=100: 3.33× (equal rounds and no server's work: 1.43×)"
    assert claim.verdict.startswith(REPRODUCED)
    assert "McMahan" in large.what
    assert large.verdict.startswith(NOT_TESTABLE)
    claim, large = [one for one in training.claims(found | {"mcmahan": result}) if one.where == "Figure 5b"]
    assert large.ours == claim.ours


def test_non_iid_data_is_compared_after_the_same_rounds(result: dict[str, Any]) -> None:
    shards = {**result, "numbers": {"runs": [runs("pairwise", "expected", [0.5, 0.85, 0.9])]}}
    assert training.drops({"fig5": result, "fig6": shards})[0][1] == Spread(0.0, 0.0, 0.0)
    later = {**result, "numbers": {"runs": [runs("pairwise", "expected", [0.5, 0.93])]}}
    ((_, spread),) = training.drops({"fig5": later, "fig6": shards})
    assert spread is not None
    assert spread.median == pytest.approx(3.0)


def test_a_share_that_rises_with_alpha_is_not_called_falling() -> None:
    def point(alpha: float, share: float) -> dict[str, Any]:
        return {"clients": 100, "alpha": alpha, "singled_out": {"theory": share, "mean": share}}

    assert others._falls([point(0.1, 0.02), point(0.2, 0.001)])
    assert not others._falls([point(0.1, 0.02), point(0.2, 0.03)])
