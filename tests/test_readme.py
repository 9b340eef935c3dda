"""What the README says is what the project does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.commands import run
from experiments.overview import run as overview
from snippets import PAGES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_of_the_training_page_is_the_one_in_the_examples_folder() -> None:
    example = (ROOT / "examples" / "train_your_own.py").read_text(encoding="utf-8").split('"""\n', 1)[1].strip()
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert example in page.split("<!-- example: examples/train_your_own.py -->\n")[1].split("<!-- end -->")[0]


@pytest.mark.parametrize("page", overview.PAGES, ids=lambda page: page.name)
def test_the_tables_are_what_was_measured(page: Path) -> None:
    """But for the accuracy, which follows results/slices.json: `--publish` brings it up to date."""
    result, text = overview.read(), page.read_text(encoding="utf-8")
    lines = text.splitlines()
    for row in overview.table(result, page) if page.name != "flower.md" else []:
        start, end = row.split(" | ")[:4], row.split(" | ")[-1]
        assert any(line.startswith(" | ".join(start)) and line.endswith(end) for line in lines), row
    if page.name != "index.md":
        assert "\n".join(overview.nodes_table(result)) in text
    assert all(row["exact"] for row in (result["peer"], *result["rows"]))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`sparsesecagg ([a-z]+)", README))))
def test_every_command_that_is_named_exists(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(capsys, name, "--help")[0] == 0


@pytest.mark.parametrize("job", sorted(set(re.findall(r"make ([a-z-]+)", README))))
def test_every_make_job_that_is_named_exists(job: str) -> None:
    assert re.search(rf"^{job}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", sorted({*PAGES, *(f"examples/{name}/README.md" for name in ("http", "lora"))}))
def test_every_file_that_a_page_links_to_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    folder = (ROOT / page).parent
    assert not [link for link in links if "://" not in link and not (folder / link).exists()]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_no_page_installs_by_a_name_that_somebody_else_could_register(page: str) -> None:
    """Until 0.1.0 is on PyPI; `errors.install_command` is the place to change then."""
    assert not re.search(r"pip install '?sparsesecagg", (ROOT / page).read_text(encoding="utf-8"))


def test_the_readme_stays_short() -> None:
    assert len(README.splitlines()) <= 120


def test_nothing_names_a_package_host_or_a_folder_of_one_machine() -> None:
    """In files that the project ships; constraints are bare names and versions."""
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line), line
