"""The committed audit results keep what the project claims, and the documentation shows them as they are."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
AUDITS = json.loads((ROOT / "results" / "audit.json").read_text(encoding="utf-8"))["audits"]
THIRD = pytest.approx(1 / 3)


def results(**wanted):
    """Return the audits of some settings."""
    return [audit for audit in AUDITS if all(value == audit[name] for name, value in wanted.items())]


@pytest.mark.parametrize(("alpha", "colluding", "theory"), [(0.1, 0, 0.285), (0.1, THIRD, 0.515), (0.2, THIRD, 0.51)])
def test_pairwise_reveals_what_the_design_says(alpha: float, colluding, theory: float) -> None:
    (found,) = results(pattern="pairwise", alpha=pytest.approx(alpha), colluding=colluding, dropout=0.3)
    assert found["clients"] == 100
    assert found["revealed_in_theory"] == pytest.approx(theory, rel=0.03)
    assert found["revealed_fraction"] == pytest.approx(theory, rel=0.08)


def test_without_dropouts_and_colluders_pairwise_hides_most_values_in_pairs() -> None:
    (found,) = results(pattern="pairwise", dropout=0)
    assert found["revealed_fraction"] == 0
    assert found["honest_component"]["histogram"]["2"] > 0.8


@pytest.mark.parametrize("pattern", ["sliced", "full"])
def test_nothing_is_revealed_to_a_semi_honest_server(pattern: str) -> None:
    found = results(pattern=pattern, server="semi-honest")
    assert {round(audit["alpha"], 3) for audit in found} >= ({0.1, 0.01} if pattern == "sliced" else {1.0})
    for audit in found:
        assert audit["revealed_fraction"] == 0
        assert audit["honest_component"]["min"] >= audit["threshold"] - audit["colluders"] == audit["promised"] > 1


def test_the_bound_holds_against_a_malicious_server_and_is_met() -> None:
    kept = [audit for audit in results(server="malicious") if audit["promised"]]
    assert all(audit["honest_component"]["min"] >= audit["promised"] for audit in kept)
    assert all(audit["revealed_fraction"] == 0 for audit in kept)
    (met,) = (audit for audit in kept if audit["dropout"] == 0)
    assert met["honest_component"]["min"] == met["promised"]


def test_a_threshold_that_is_too_low_lets_a_malicious_server_read_everything() -> None:
    (control,) = (audit for audit in results(server="malicious") if not audit["promised"])
    assert 2 * control["threshold"] <= control["clients"] + control["colluders"]
    assert control["revealed_fraction"] == 1


@pytest.mark.parametrize("found", AUDITS, ids=lambda found: f"{found['pattern']} {found['alpha']:.1g}")
def test_every_claim_of_the_attacker_is_right_and_none_is_missing(found) -> None:
    for claims in (found["values_recovered"], found["pairs_found"]):
        assert claims["correct"] == claims["count"]
    assert found["revealed_fraction"] == pytest.approx(found["unmasked_fraction"], rel=1e-3)


def test_the_documentation_shows_the_committed_figures() -> None:
    publish = runpy.run_path(str(ROOT / "experiments" / "audit" / "publish.py"))
    document = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert publish["BEGIN"] + publish["table"](AUDITS) + publish["END"] in document
