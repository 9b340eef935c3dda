"""The page as a document: whole, offline, safe, the same every time."""

import re
import sys
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.report.conftest import NASTY
from lab.report.synthetic import write_comparison, write_run
from sparsesecagg.errors import InvalidInput, MissingExtra
from sparsesecagg.lab.report import write_report
from sparsesecagg.lab.report.page import element

VOID = {"meta"}


class Document(HTMLParser):
    """What a browser would see of a page, scripts and styles aside."""

    def __init__(self, page: Path | str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page.read_text("utf-8") if isinstance(page, Path) else page)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Elements close in the order they opened."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note text that is shown."""
        if self._open and self._open[-1] not in {"script", "style"}:
            self.text += f"{data}\n"

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("which", ["comparison", "single"])
def test_every_plot_has_a_title_a_caption_and_an_alternative_text(request: pytest.FixtureRequest, which: str) -> None:
    """Six plots, each a figure."""
    page = Document(request.getfixturevalue(which))
    places = [a for a in page.all("div") if a.get("class") == "plot"]
    assert len(places) == len(page.all("figure")) == len(page.all("figcaption")) == 6
    assert all(place["role"] == "img" and place["aria-label"] for place in places)
    identities = Counter(a["id"] for _, a in page.elements if "id" in a)
    assert max(identities.values()) == 1


def test_headings_lead_through_the_page(comparison: Path) -> None:
    """One h1, then h2 for sections and h3 for plots; none is skipped."""
    levels = [int(tag[1]) for tag, _ in Document(comparison).elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_the_page_says_which_figures_are_simulated(single: Path) -> None:
    """Measured and modelled are words of the page, not of a footnote."""
    text = Document(single).text
    assert "Computing, measured" in text
    assert "Transfer, simulated" in text
    assert "the network is simulated" in text


def test_what_was_trained_stands_above_and_every_option_below(single: Path) -> None:
    text = Document(single).text
    assert "dataset synthetic test data · partition dirichlet · model mlp · dim 21840 · clients 50" in text
    for words in ("Settings", "momentum\n0.5\n"):
        assert words in text


def test_what_the_server_may_read_stands_beside_the_bytes(tmp_path: Path) -> None:
    """A run that sends little and hides little is seen to do both; nested options are named in full."""
    effective = {"threshold": 26, "anonymity": 1}
    page = Document(write_report(write_run(tmp_path / "run", rounds=2, expected_exposure=0.28, effective=effective)))
    assert "The server can read\n28 %\nA user hides among\n1 user\n" in page.text
    assert "effective.threshold\n26\n" in page.text


def test_failed_rounds_are_listed_with_their_reasons(single: Path) -> None:
    """For those whom a cross in a plot tells nothing."""
    assert "sliced, round 4\n: 22 users left at UNMASK, 26 are needed" in Document(single).text


def test_runs_that_differ_in_an_option_are_told_apart(tmp_path: Path) -> None:
    """By a word, and before all others."""
    folder = write_comparison(tmp_path / "all", ("sliced", "secagg"), rounds=2)
    config = folder / "secagg" / "config.json"
    config.write_text(config.read_text().replace('"modulus_bits": 16', '"modulus_bits": 32'))
    page = Document(write_report(folder))
    assert "Option\nsliced\nsecagg\naggregator (differs)\nsliced\nsecagg\nmodulus_bits (differs)\n16\n32\n" in page.text


def test_a_comparison_with_one_partition_shows_it_once(comparison: Path, tmp_path: Path) -> None:
    """And with two, both."""
    assert Document(comparison).text.count("Label distribution\n") == 1
    folder = write_comparison(tmp_path / "all", ("sliced", "secagg"), rounds=2)
    write_run(tmp_path / "other", seed=9, rounds=1)
    (tmp_path / "other" / "partition.json").replace(folder / "secagg" / "partition.json")
    assert Document(write_report(folder)).text.count("Label distribution\n") == 2


def test_plotly_is_inside_exactly_once(comparison: Path) -> None:
    """One copy and little else: under 200 kB for four runs of 30 rounds."""
    pytest.importorskip("plotly")
    from plotly.offline import get_plotlyjs

    text = comparison.read_text("utf-8")
    assert text.count(get_plotlyjs()) == 1
    assert len(text.encode()) - len(get_plotlyjs().encode()) < 200_000


def test_nothing_is_loaded_from_anywhere(comparison: Path) -> None:
    """No address in any element, and a policy that forbids all of them."""
    page = Document(comparison)
    assert not any(
        name in attributes for _, attributes in page.elements for name in ("src", "href", "srcset", "action")
    )
    (policy,) = [a["content"] or "" for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy


def test_text_of_a_run_folder_stays_text(hostile: Path) -> None:
    """Names, reasons, classes and options show as they are; none of them becomes an element."""
    page = Document(hostile)
    assert NASTY in page.text
    assert not {"img", "b", "i"} & {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_the_same_folder_gives_the_same_bytes(single: Path) -> None:
    """A report can be checked in and compared."""
    before = single.read_bytes()
    assert write_report(single.parent).read_bytes() == before


def test_nothing_else_is_left_in_the_folder(single: Path) -> None:
    """No draft."""
    assert {path.name for path in single.parent.iterdir()} == {
        "config.json",
        "partition.json",
        "metrics.jsonl",
        "report.html",
    }


def test_a_folder_that_is_no_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(InvalidInput, match="sparsesecagg train"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_plotly_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is written."""
    folder = write_run(tmp_path / "run", rounds=1)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingExtra, match=r"\[learn\]"):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_groups_exchanges_and_the_way_down_are_told(tmp_path: Path) -> None:
    """The sizes of groups, bytes down with the model, and how much of the model a round updates."""
    effective = {"alpha": 0.25, "groups": 4, "group_size": {"min": 12, "max": 13}}
    page = Document(write_report(write_run(tmp_path / "run", rounds=2, effective=effective)))
    for words in (
        "effective.group_size.max\n13\n",
        "Exchanges per round\n2\n",
        "Coordinates updated per round\n90.0 %\n",
        "All received per round, with the model\n",
    ):
        assert words in page.text


# HTML cannot carry a carriage return or a NUL as such; everything else it can.
TEXT = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]))


@given(TEXT)
def test_text_is_seen_as_it_was_given(text: str) -> None:
    """The parser finds one element and exactly the text."""
    seen = Document(element("p", text))
    assert seen.elements == [("p", {})]
    assert seen.text.replace("\n", "") == text.replace("\n", "")


@given(TEXT)
def test_attributes_are_seen_as_they_were_given(text: str) -> None:
    """No quote ends an attribute early."""
    assert Document(element("div", aria_label=text)).elements == [("div", {"aria-label": text})]


def test_elements_nest_without_being_escaped_twice() -> None:
    """Only plain strings are escaped."""
    assert element("p", element("b", "a<b"), " & c", None) == "<p><b>a&lt;b</b> &amp; c</p>"
    assert element("p", "<", element("meta")) == "<p>&lt;<meta></p>"
