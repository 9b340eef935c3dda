"""The documentation builds as a site: without a warning, without a network, and with links that lead somewhere."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the site needs the docs extra")
    pytest.importorskip("mkdocstrings", reason="the site needs the docs extra")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        # No proxy leads out of here, so that whatever asks another host fails.
        env={
            **os.environ,
            "NO_MKDOCS_2_WARNING": "1",
            "https_proxy": "http://127.0.0.1:9",
            "http_proxy": "http://127.0.0.1:9",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    return folder


@pytest.mark.slow
def test_pages_load_nothing_from_another_host(site: Path) -> None:
    sources = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="(https?:[^"]+)"')
    styles = re.compile(r'<link[^>]*rel="(?:stylesheet|preload)"[^>]*href="(http[^"]+)"')
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not sources.findall(text) + styles.findall(text), page


@pytest.mark.slow
def test_no_comment_breaks_a_table_or_a_paragraph(site: Path) -> None:
    """A comment between rows, or a `|` in one, leaves rows as text; one that begins a line ends its paragraph."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<p>\s*\||&lt;!--|<p>\s*<!-- = ", text), page
    for page in (ROOT / "docs").glob("*.md"):
        assert not re.search(r"^<!-- = ", page.read_text(encoding="utf-8"), re.MULTILINE), page


@pytest.mark.slow
def test_links_that_leave_the_documentation_lead_to_files_of_the_repository(site: Path) -> None:
    outside = re.compile(r'href="https://github\.com/sparsesecagg/sparsesecagg/(?:blob|tree)/main/([^"#]+)')
    links = {link for page in site.rglob("*.html") for link in outside.findall(page.read_text(encoding="utf-8"))}
    assert {"examples/http/README.md", "results/downlink.json"} <= links
    assert not [link for link in links if not (ROOT / html.unescape(link)).exists()]


@pytest.mark.slow
def test_the_reference_shows_what_a_caller_needs(site: Path) -> None:
    page = (site / "reference" / "protocol.html").read_text(encoding="utf-8")
    for name in ("Server.receive", "Server.close_stage", "Server.result", "Server.stage", "Client.upload"):
        assert f'id="sparsesecagg.{name}"' in page
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "SqliteLedger" in index
    assert (site / "notebook.html").exists()
