"""The page says what the result files say, and nothing else."""

import json
import re

import pytest

from benchmarks import claims, page, results
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol.parameters import VERSION


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "limits.json").write_text(
        json.dumps({"mask_expansion": {"8": {"bytes_per_second": 3e9, "fraction_of_aes": 0.39}}, "rate": 1.234e9})
    )
    return tmp_path


def test_places_are_filled_from_the_files(directory):
    assert page.render("{{ limits : rate | GB }}/s is {{limits:rate|.1e}}", directory) == "1.23 GB/s is 1.2e+09"


def test_tables_are_markdown(directory):
    lines = page.render("{{ limits }}", directory).splitlines()
    assert lines[1] == "| --- | ---: | ---: |"
    assert lines[2] == "| 8 bits | 3.00 GB/s | 39 % |"


def test_a_missing_result_is_an_error_not_a_gap(directory):
    with pytest.raises(FileNotFoundError):
        page.render("{{ scaling : full }}", directory)


def test_a_section_waits_for_its_results(directory):
    template = "one\n{{ with limits whole }}\n{{ whole }}\n{{ end }}\ntwo {{ limits : rate | GB }}"
    assert page.render(template, directory) == "one\ntwo 1.23 GB"
    template = "{{ with limits }}\n{{ limits : rate | GB }}\n{{ end }}\ntwo"
    assert page.render(template, directory) == "1.23 GB\ntwo"


def test_claims_hold_or_not_by_the_numbers_alone(directory):
    (claim,) = claims.claims(directory)
    assert (claim.asked, claim.measured, claim.holds) == ("≥ 40 %", "39 %", False)
    assert not claims.at_most("", 1.1, 1.2).holds
    assert claims.at_most("", 1.1, 1.1).holds
    assert claims.at_least("", 25, 25).holds


def test_results_are_written_with_the_machine_and_read_back(tmp_path):
    results.write("one", {"seconds": 1.23456789, "points": [[1, 2.0]]}, results.begin(), tmp_path)
    found = results.read("one", tmp_path)
    assert "commit" in found
    assert found["seconds"] == 1.2346
    assert found["points"] == [[1, 2.0]]
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["quiet"] is (found["machine"]["load_before"] < 1)
    assert found["protocol"] == VERSION


def test_nothing_is_published_from_a_tree_with_changes(monkeypatch):
    monkeypatch.setattr(results, "_git", lambda *arguments: "abc1234" if "rev-parse" in arguments else " M src/x.py")
    assert results.begin()["commit"] == "abc1234+"
    with pytest.raises(InvalidInput, match="committed"):
        results.begin(publish=True)


def test_figures_of_another_protocol_are_called_that(directory):
    content = {**json.loads((directory / "limits.json").read_text()), "commit": "abc1234"}
    machine = {"load_before": 0.2, "quiet": True}
    (directory / "limits.json").write_text(json.dumps({**content, "protocol": VERSION, "machine": machine}))
    assert page.render("{{ provenance }}", directory).splitlines()[2:] == [
        f"| limits | abc1234 | {VERSION} | 0.2 before | yes |"
    ]
    (directory / "limits.json").write_text(json.dumps({**content, "machine": {"load_average": 7.2}}))
    text = page.render("{{ provenance }}", directory)
    assert "protocol version 1" in text.splitlines()[0]
    assert "limits (commit abc1234)" in text.splitlines()[0]
    assert text.endswith("| limits | abc1234 | 1 | 7.2 at the end | **no** |")


def test_the_committed_page_is_what_the_committed_results_say():
    assert page.PAGE.read_text() == page.render(page.TEMPLATE.read_text())


def test_every_number_of_the_prose_that_could_be_measured_is_a_place():
    prose = page.TEMPLATE.read_text()
    outside = re.sub(r"\{\{.*?\}\}", "", prose, flags=re.DOTALL)
    assert not re.findall(r"\d[\d.,]*\s*(?:×|ms\b|MB\b|GB\b|kB\b)", outside)


def test_the_plots_of_the_page_are_there():
    for name in re.findall(r"\]\((img/[^)]+)\)", page.TEMPLATE.read_text()):
        assert (page.DOCS / name).exists()


def test_plots_are_drawn_from_the_results_and_stay_the_same(tmp_path):
    pytest.importorskip("matplotlib")
    for docs in (tmp_path / "one", tmp_path / "two"):
        page.write(docs=docs)
    images = sorted(path.name for path in (tmp_path / "one" / "img").iterdir())
    assert len(images) == 5
    for name in images:
        first, second = ((tmp_path / run / "img" / name).read_bytes() for run in ("one", "two"))
        assert first == second
