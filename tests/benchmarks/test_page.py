"""The page says what the result files say, and nothing else."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page, results
from benchmarks.__main__ import NAMES
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol.parameters import VERSION


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    (tmp_path / "threads.json").write_text(json.dumps({"speedup": 1.234, "bytes": 1.234e9}))
    return tmp_path


def test_no_result_file_describes_another_protocol() -> None:
    for name in results.names():
        assert results.read(name)["protocol"] == VERSION, f"{name} is of another protocol version: measure it again"
        assert name in NAMES, f"no part of the benchmarks writes {name}"


def test_the_page_shows_every_part() -> None:
    shown = re.findall(r"\{\{ with (.+?) \}\}", page.TEMPLATE.read_text())
    assert {name for names in shown for name in names.split()} == set(NAMES)


def test_places_are_filled_from_the_files(directory: Any) -> None:
    assert page.render("{{ threads : bytes | GB }}/s is {{threads:speedup|.1f}}", directory) == "1.23 GB/s is 1.2"


def test_a_missing_result_is_an_error_not_a_gap(directory: Any) -> None:
    with pytest.raises(FileNotFoundError):
        page.render("{{ growth : full }}", directory)


def test_a_section_waits_for_its_results(directory: Any) -> None:
    template = "one\n{{ with threads whole }}\n{{ whole }}\n{{ end }}\ntwo {{ threads : bytes | GB }}"
    assert page.render(template, directory) == "one\ntwo 1.23 GB"
    template = "{{ with threads }}\n{{ threads : bytes | GB }}\n{{ end }}\ntwo"
    assert page.render(template, directory) == "1.23 GB\ntwo"


def test_the_whole_round_table_leaves_a_dash_where_nothing_is_computed() -> None:
    plain = {"sent_bytes": 4000, "received_bytes": 4000, "total_bytes": 8000, "exchanges": 1}
    sliced = {**plain, "exchanges": 2, "client_seconds": 0.0123, "server_seconds": 0.5}
    lines = page._whole({"sizes": {"1000": {"plain": plain, "sliced_steps": sliced}}}).splitlines()
    assert lines[2] == "| 1,000 | plain FedAvg | 4.0 kB | 4.0 kB | 8.0 kB | 1 | – | – |"
    assert lines[3] == "| 1,000 | sliced, steps down | 4.0 kB | 4.0 kB | 8.0 kB | 2 | 12.3 ms | 500.0 ms |"


def test_results_are_written_with_the_machine_and_read_back(tmp_path: Path) -> None:
    results.write("one", {"seconds": 1.23456789, "points": [[1, 2.0]]}, results.begin(), tmp_path)
    found = results.read("one", tmp_path)
    assert "commit" in found
    assert found["seconds"] == 1.2346
    assert found["points"] == [[1, 2.0]]
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["quiet"] is (found["machine"]["load_before"] < 1)
    assert found["protocol"] == VERSION
    assert results.names(tmp_path) == ["one"]


def test_nothing_is_published_from_a_tree_with_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_git", lambda *arguments: "abc1234" if "rev-parse" in arguments else " M src/x.py")
    assert results.begin()["commit"] == "abc1234+"
    with pytest.raises(InvalidInput, match="committed"):
        results.begin(publish=True)


def test_the_committed_page_is_what_the_committed_results_say() -> None:
    assert page.PAGE.read_text() == page.render(page.TEMPLATE.read_text())


def test_every_number_of_the_prose_that_could_be_measured_is_a_place() -> None:
    prose = page.TEMPLATE.read_text()
    own = re.sub(r"<!-- published -->.*?<!-- end -->", "", prose, flags=re.DOTALL)
    outside = re.sub(r"\{\{.*?\}\}", "", own, flags=re.DOTALL)
    assert not re.findall(r"\d[\d.,]*\s*(?:×|ms\b|MB\b|GB\b|kB\b)", outside)


def test_the_plots_of_the_page_are_there() -> None:
    shown = set(re.findall(r"\]\(img/([^)]+)\)", page.PAGE.read_text()))
    assert shown == ({*page.FIGURES} if results.exists("growth") else set())
    assert {path.name for path in (page.DOCS / "img").glob("performance-*")} == shown


def test_plots_are_drawn_from_the_results_and_stay_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    points = {"points": [[10.0, 0.1], [100.0, 1.0]], "exponent": 1.0}
    sweep = {"title": "UPLOAD", "varied": "clients", "series": {"secagg": points, "sliced": points}}
    content = {"sweeps": dict.fromkeys([name for names in page.FIGURES.values() for name in names], sweep)}
    (tmp_path / "growth.json").write_text(json.dumps({**content, "machine": {}}))
    for docs in (tmp_path / "one", tmp_path / "two"):
        page.write(tmp_path, docs)
    for name in page.FIGURES:
        first, second = ((tmp_path / run / "img" / name).read_bytes() for run in ("one", "two"))
        assert first == second
