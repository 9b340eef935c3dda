"""docs/reproduction.md: what is claimed, what came out, and the rules of the verdicts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments import figures_in_prose, publish
from experiments.claims import appendix, measured, page
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
    assert not re.search(r"<!-- = [^>]*\|", text), "a mark with | ends the cell of a table"


def test_a_figure_is_found_by_keys_places_and_what_an_entry_has(tmp_path: Path) -> None:
    entries = [{"clients": 25, "alpha": 0.1000001, "share": 0.505}, {"clients": 50, "share": [1, 20_000]}]
    (tmp_path / "some.json").write_text(json.dumps({"numbers": entries}))
    assert figures_in_prose.figure("some: numbers[clients=25,alpha=0.1].share; percent 1", tmp_path) == "50.5 %"
    assert figures_in_prose.figure("some: numbers[1].share[1]; count", tmp_path) == "20,000"
    sentence = "about <!-- = some: numbers[0].share; times 3 -->7×<!-- . --> less"
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


def test_equal_rounds_save_what_one_round_saves(result: dict[str, Any]) -> None:
    claim = next(one for one in measured.of_training({"fig5": result}) if one.where == "Figure 5a")
    assert claim.ours == "N=100: 7.9×"
    assert claim.verdict == NO
    assert "lr 0.01, θ = 0.30" in claim.condition


def test_ours_stands_beside_both_with_the_honest_users_of_every_sum(result: dict[str, Any]) -> None:
    """SecAgg's 2 × 70 × 4,000 bytes and the published 2 × 70 × 506 in its own format, against 3 × 70 × 100 of ours."""
    short = run("sliced", [0.5, 0.8, 0.9], modulus_bits=9, total_upload_bytes=3 * 70 * 100)
    result["numbers"]["runs"].append(short | {"label": "sliced, short"})
    (_, _, row) = measured.ours({"fig5": result})
    assert row.startswith("| fig5, 9 bits | 100 | 0.01 | 2 / 2 / 3 | 0.56 / 0.07082 / 0.021 | 26.7× | 3.4× |")
    assert row.endswith("| 10.0×, 1.3× | 18 / 18 / 18 | 1 |")
    assert measured.ours({"fig5": result}, cohorts=(25,))[2:] == []


@pytest.mark.parametrize(("accuracy", "within"), [([0.8, 0.91], 1), ([0.1] * 30 + [0.91], 0)], ids=["near", "far"])
def test_another_seed_is_put_beside_where_one_more_is_to_be_expected(
    result: dict[str, Any], accuracy: list[float], within: int
) -> None:
    result["numbers"]["runs"] = [run("secagg", [0.8, 0.9 + seed / 100], seed=seed) for seed in range(3)]
    again = result | {"seed": 17, "numbers": {"runs": [run("secagg", accuracy, seed=17)]}}
    text = measured.rerun({"fig5": result}, {"fig5": again})
    assert text.endswith(f"{within} of 1 are within.")
    assert "another seed (17, " in text


def test_a_hypothesis_is_judged_with_most_users_and_fewer_stand_behind_it() -> None:
    about = {"hypothesis": "H1", "figure": "fig5", "seed": 0, "ratio": 1.0}
    table = [{**about, "clients": 25, "saving": 17.9}, {**about, "clients": 100, "saving": 9.0}]
    (row,) = [x for x in measured.hypotheses({"hypotheses": {"numbers": {"runs": [], "table": table}}}) if "H1" in x]
    assert "| 9.0× (17.9×) |" in row


def test_a_hypothesis_whose_target_was_not_reached_says_so() -> None:
    about = {"figure": "fig5", "clients": 25, "seed": 0}
    runs = [{**about, "rule": rule} for rule in ("secagg-models", "sparse")]
    lines = measured.hypotheses({"hypotheses": {"numbers": {"runs": runs, "table": []}}})
    assert any(
        "H2: SecAgg adds up models and divides by N | R × 7.9 | target not reached | R × 7.9" in x for x in lines
    )


def test_the_pages_behind_it_show_the_committed_results() -> None:
    for name, text in appendix.pages(publish.RESULTS).items():
        assert (publish.DOCS / name).read_text(encoding="utf-8") == text, "run python -m experiments.publish"


def test_every_experiment_has_its_place_on_the_pages_behind_also_where_nothing_is_measured(tmp_path: Path) -> None:
    assert sorted(name for _, names in appendix.PAGES.values() for name in names) == sorted(NAMES)
    pages = appendix.pages(tmp_path)
    assert all(f"## {name}: " in "".join(pages.values()) for name in NAMES)
    assert "Not measured yet: `sudo" in pages["reproduction-clock.md"]


def test_how_far_a_training_has_come_is_told_by_n(result: dict[str, Any]) -> None:
    result["numbers"]["runs"].append(run("secagg", [0.9], clients=25, seed=1))
    result["configuration"]["training"]["cohorts"] = [{"clients": clients} for clients in (25, 50, 100)]
    assert page._so_far(result) == "N = 25: only secagg, N = 50: nothing yet, N = 100: 1 seed"


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
    assert iid.ours == "gaps: 3.33× at N=100"
    assert shards.ours == "gaps: 3.33×* at N=100; * with equal rounds"
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
