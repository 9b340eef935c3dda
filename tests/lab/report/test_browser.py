"""The page as people see it: opened in a real browser, at a desk and on a phone."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.report.browser import NAMES, Browser, Page, chromium, find_chromium

# Continuous integration sets this, so that a browser gone missing is a failure there and not a skipped test.
NEEDED = "SPARSESECAGG_NEED_BROWSER"

pytestmark = pytest.mark.skipif(
    find_chromium() is None and not os.environ.get(NEEDED),
    reason=f"the report was NOT seen in a browser: none of {', '.join(NAMES)} is installed (apt install chromium)",
)

# What was really drawn in each plot: the size of its picture, and how many marks it holds.
DRAWN = """
[...document.querySelectorAll(".plot")].map((plot) => {
  const picture = plot.querySelector("svg.main-svg");
  const size = picture ? picture.getBoundingClientRect() : {width: 0, height: 0};
  const marks = [...plot.querySelectorAll(".trace path, .bars path, .points path, .hm image, .fills path")];
  const seen = marks.filter((mark) => {
    const box = mark.getBoundingClientRect();
    return box.width > 0 || box.height > 0;
  });
  return {id: plot.querySelector(".plotly-graph-div").id, width: size.width, height: size.height,
          marks: seen.length, inside: plot.getBoundingClientRect().right <= document.documentElement.clientWidth};
})
"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PLOTS = 6


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this file."""
    with chromium() as running:
        yield running


def assert_fine(page: Page) -> None:
    """Every plot was drawn, the page is no wider than the screen, nobody complained, nothing was asked for."""
    plots: list[dict[str, Any]] = page.evaluate(DRAWN)
    assert len(plots) == PLOTS
    for plot in plots:
        assert plot["width"] > 250, plot
        assert plot["height"] > 150, plot
        assert plot["marks"] > 0, plot
        assert plot["inside"], plot
    assert page.evaluate(OVERFLOW) <= 0
    assert page.complaints() == []
    assert page.requests() == []


@pytest.fixture(scope="module")
def desk(browser: Browser, comparison: Path) -> Iterator[Page]:
    """The comparison on a desktop, light. Tests leave it as they found it."""
    with browser.open(comparison, 1280, 900) as page:
        yield page


def test_a_desktop_shows_every_plot(desk: Page) -> None:
    """All plots, no sideways scrolling, no console error, no request."""
    assert desk.evaluate("innerWidth") == 1280
    assert_fine(desk)


@pytest.mark.parametrize("which", ["comparison", "single"])
def test_a_phone_shows_every_plot(browser: Browser, request: pytest.FixtureRequest, which: str) -> None:
    """The same at 390 pixels."""
    with browser.open(request.getfixturevalue(which), 390, 844, mobile=True) as page:
        assert page.evaluate("innerWidth") == 390
        assert_fine(page)


def test_a_hostile_run_folder_runs_no_code(browser: Browser, hostile: Path) -> None:
    """Nothing is executed or requested, and no element appears that we did not make."""
    with browser.open(hostile, 1280, 900) as page:
        assert page.evaluate("window.pwned") is None
        assert page.evaluate("document.querySelectorAll('img, b, .plot a').length") == 0
        assert_fine(page)


def test_these_checks_would_notice(browser: Browser, single: Path) -> None:
    """An emptied plot, a page too wide, an error and a request are all seen by what the tests above look at."""
    with browser.open(single, 1280, 900) as page:
        page.evaluate("Plotly.purge('contributors')")
        assert next(plot for plot in page.evaluate(DRAWN) if plot["id"] == "contributors")["marks"] == 0
        page.evaluate("document.body.style.width = '3000px'")
        assert page.evaluate(OVERFLOW) > 0
        page.evaluate("console.error('seen'); fetch('http://localhost:9/').catch(() => 0)")
        assert any("seen" in complaint for complaint in page.complaints())
        assert any("Content Security Policy" in complaint for complaint in page.complaints())
