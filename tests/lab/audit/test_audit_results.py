"""The committed audit results keep what the project claims, and the documentation shows them as they are."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AUDITS = json.loads((ROOT / "results" / "audit.json").read_text(encoding="utf-8"))["audits"]
THIRD = pytest.approx(1 / 3)


def result(pattern, alpha, colluding, dropout=0.3, server="curious", drop_at="UPLOAD", confirm=False):
    """Return the one audit of a setting."""
    wanted = (pattern, pytest.approx(alpha), colluding, dropout, server, drop_at, confirm)
    names = ("pattern", "alpha", "colluding", "dropout", "server", "drop_at", "confirm")
    (found,) = (audit for audit in AUDITS if tuple(audit[name] for name in names) == wanted)
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
def test_revealed_fractions_are_as_claimed(pattern: str, alpha: float, colluding, least: float, most: float) -> None:
    found = result(pattern, alpha, colluding)
    assert found["clients"] == 100
    assert least <= found["revealed_fraction"] <= most


def test_without_dropouts_and_colluders_pairwise_hides_most_values_in_pairs() -> None:
    found = result("pairwise", 0.1, 0, dropout=0)
    assert found["revealed_fraction"] == 0
    assert found["honest_component"]["histogram"]["2"] > 0.8


def test_small_fractions_are_measured_over_enough_sums_and_draws() -> None:
    found = result("committee", 0.1, THIRD)
    assert found["sums"] >= 350
    assert found["runs"] >= 10


def test_what_is_revealed_is_what_theory_expects() -> None:
    """A third colluding, committees of ten: about five sums of one user are expected in 400, so within a factor."""
    found = result("committee", 0.1, THIRD)
    assert found["revealed_in_theory"] == pytest.approx(0.00277, rel=0.01)
    assert found["revealed_fraction"] < 3 * found["revealed_in_theory"]
    for colluding, dropout in ((0, 0.3), (THIRD, 0.3)):
        pairwise = result("pairwise", 0.1, colluding, dropout)
        assert pairwise["revealed_fraction"] == pytest.approx(pairwise["revealed_in_theory"], rel=0.1)


def test_a_lying_server_reads_more_and_confirm_lets_it_read_less() -> None:
    curious = result("committee", 0.1, THIRD)
    lying = result("committee", 0.1, THIRD, server="lying")
    assert lying["honest_component"]["mean"] < curious["honest_component"]["mean"]
    assert lying["revealed_fraction"] > curious["revealed_fraction"]
    split = result("committee", 0.2, 0.1, 0.1, server="lying")
    same = result("committee", 0.2, 0.1, 0.1, server="lying", confirm=True)
    assert same["honest_component"]["min"] >= split["honest_component"]["min"]
    assert same["revealed_fraction"] == 0


@pytest.mark.parametrize("found", AUDITS, ids=lambda found: f"{found['pattern']} {found['alpha']:.1g}")
def test_every_claim_of_the_attacker_is_right_and_none_is_missing(found) -> None:
    for claims in (found["values_recovered"], found["pairs_found"]):
        assert claims["correct"] == claims["count"]
    assert found["revealed_fraction"] == pytest.approx(found["unmasked_fraction"], rel=1e-3)


def test_the_documentation_shows_the_committed_figures() -> None:
    publish = runpy.run_path(str(ROOT / "experiments" / "audit" / "publish.py"))
    document = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert publish["BEGIN"] + publish["table"](AUDITS) + publish["END"] in document
