"""The committed audit results keep what the project claims, and the documentation shows them as they are."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AUDITS = json.loads((ROOT / "results" / "audit.json").read_text(encoding="utf-8"))["audits"]
THIRD = pytest.approx(1 / 3)


def result(pattern, alpha, colluding, dropout=0.3):
    """Return the one audit of a setting."""
    wanted = (pattern, pytest.approx(alpha), colluding, dropout)
    (found,) = (
        audit for audit in AUDITS if (audit["pattern"], audit["alpha"], audit["colluding"], audit["dropout"]) == wanted
    )
    return found


@pytest.mark.parametrize(
    ("pattern", "alpha", "colluding", "least", "most"),
    [
        ("pairwise", 0.1, 0, 0.26, 0.31),
        ("pairwise", 0.1, THIRD, 0.48, 0.55),
        ("committee", 0.1, 0, 0, 0.001),
        ("committee", 0.1, THIRD, 0, 0.006),
        ("committee", 0.2, THIRD, 0, 0.0005),
        ("full", 1.0, THIRD, 0, 0),
    ],
)
def test_revealed_fractions_are_as_claimed(pattern, alpha, colluding, least, most):
    found = result(pattern, alpha, colluding)
    assert (found["clients"], found["rounds"]) == (100, 30)
    assert least <= found["revealed_fraction"] <= most


def test_without_dropouts_and_colluders_pairwise_hides_most_values_in_pairs():
    found = result("pairwise", 0.1, 0, dropout=0)
    assert found["revealed_fraction"] == 0
    assert found["honest_component"]["histogram"]["2"] > 0.8


def test_small_fractions_are_measured_over_enough_blocks():
    assert all(result("committee", 0.1, colluding)["blocks"] >= 1000 for colluding in (0, THIRD))


@pytest.mark.parametrize("found", AUDITS, ids=lambda found: f"{found['pattern']} {found['alpha']:.1g}")
def test_every_claim_of_the_attacker_is_right_and_none_is_missing(found):
    for claims in (found["values_recovered"], found["pairs_found"]):
        assert claims["correct"] == claims["count"]
    assert found["revealed_fraction"] == pytest.approx(found["unmasked_fraction"], rel=1e-3)


def test_the_documentation_shows_the_committed_figures():
    publish = runpy.run_path(str(ROOT / "experiments" / "audit" / "publish.py"))
    document = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert publish["BEGIN"] + publish["table"](AUDITS) + publish["END"] in document
