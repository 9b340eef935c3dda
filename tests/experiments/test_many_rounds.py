"""The committed figures of many rounds agree with the design, and the documentation shows them as they are."""

import json
from typing import Any

import pytest

from experiments.many_rounds.publish import BEGIN, DOCUMENT, RESULTS, SHOWN, WEIGHTS_BEGIN, published, table
from experiments.many_rounds.run import GROUPS

NUMBERS = json.loads(RESULTS.read_text(encoding="utf-8"))["numbers"]


@pytest.mark.parametrize(
    ("way", "dropout", "design"),
    [
        ("fresh", 0.0, (0.45, 0.74, 0.95)),
        ("kept", 0.0, (0.28, 0.28, 0.28)),
        ("secagg", 0.0, (0, 0, 0)),
        ("fresh", 0.1, (0.44, 0.74, 0.94)),
        ("kept", 0.1, (0.33, 0.48, 0.74)),
        ("secagg", 0.1, (0.16, 0.38, 0.70)),
        ("one", 0.0, (0, 0, 0)),
    ],
)
def test_the_figures_agree_with_those_of_the_design(way: str, dropout: float, design: Any) -> None:
    (line,) = (line for line in NUMBERS["correlation"] if (line["way"], line["dropout"]) == (way, dropout))
    found = [line["correlation"][NUMBERS["rounds"].index(rounds)] for rounds in SHOWN]
    assert found == pytest.approx(design, abs=0.06)


def test_a_group_of_34_is_solved_for_in_some_36_rounds() -> None:
    (line,) = (line for line in NUMBERS["weights"] if (line["members"], line["dropout"]) == (34, 0.1))
    assert 35 <= line["rounds"]["median"] <= 38
    assert len(NUMBERS["weights"]) == len(GROUPS)


def test_the_documentation_shows_the_committed_figures() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert BEGIN + table(NUMBERS) in document
    assert WEIGHTS_BEGIN in document
    assert published(document, NUMBERS) == document
