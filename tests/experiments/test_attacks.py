"""The checklist of docs/threat-model.md is what the attacks gave."""

import json
from typing import Any

from experiments.attacks import run
from sparsesecagg.lab.attacks import ATTACKS, Setting
from sparsesecagg.lab.attacks import run as play


def committed() -> Any:
    return json.loads(run.RESULTS.read_text(encoding="utf-8"))["numbers"]


def test_the_page_shows_the_committed_results() -> None:
    page = run.PAGE.read_text(encoding="utf-8")
    assert run.publish(page, committed()) == page


def test_the_committed_results_cover_every_attack() -> None:
    found = {(row["name"], row["mode"]) for row in committed()}
    assert found == {(name, mode) for name, attack in ATTACKS.items() for mode in attack.modes}


def test_a_row_of_the_committed_results_comes_out_again() -> None:
    row = next(row for row in committed() if row["name"] == "other-members")
    setting = Setting(row["clients"], row["alpha"], row["mode"], row["seed"])
    again = play(ATTACKS["other-members"], setting).as_json()
    assert again == {key: row[key] for key in again}


def test_what_is_promised_reads_nothing_and_every_control_reads() -> None:
    for row in committed():
        assert row["control_values_read"] > 0, row
        assert row["values_read"] == 0 or not row["promised"], row
