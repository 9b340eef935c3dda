"""The tables of docs/planning.md are what the planner says."""

import json

from experiments.plans import run


def test_the_committed_results_are_what_the_planner_says_now() -> None:
    committed = json.loads(run.RESULTS.read_text(encoding="utf-8"))["numbers"]
    found = json.loads(json.dumps(run.compute()))
    for row, now in zip(committed["plans"], found["plans"], strict=True):
        for server in ("lying", "curious"):
            # Logarithms may differ in their last digits from one maths library to the next.
            log2, log2_now = (plan[server].pop("privacy_failure_log2") for plan in (row, now))
            lost, lost_now = (plan[server].pop("abort_probability") for plan in (row, now))
            assert abs(log2 - log2_now) < 1e-6
            assert lost == lost_now or abs(lost - lost_now) < 1e-9
    assert found == committed


def test_the_page_shows_the_committed_results() -> None:
    numbers = json.loads(run.RESULTS.read_text(encoding="utf-8"))["numbers"]
    page = run.PAGE.read_text(encoding="utf-8")
    assert run.publish(page, numbers) == page
    assert "| 1,000 | 0.1 | 0.1 | lying | 38, 29; 76, 58; 26 | yes | 8 |" in page
