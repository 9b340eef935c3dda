"""What the README says is what the project does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.commands import run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def between(marker: str) -> str:
    """Return what stands behind a marker, up to its end."""
    return README.split(f"<!-- {marker} -->\n")[1].split("<!-- end -->")[0]


def test_the_table_shows_the_committed_results() -> None:
    rounds = json.loads((ROOT / "results" / "sizes.json").read_text(encoding="utf-8"))["rounds"]
    table = between("table: results/sizes.json")
    for name, found in rounds.items():
        assert found["exact"]
        assert f"| {name} | {found['upload_bytes']['max']:,} |" in table


def test_the_example_is_the_one_in_the_examples_folder() -> None:
    example = (ROOT / "examples" / "train_your_own.py").read_text(encoding="utf-8").split('"""\n', 1)[1].strip()
    assert example in between("example: examples/train_your_own.py")


def test_the_first_try_works(capsys: pytest.CaptureFixture[str]) -> None:
    code = README.split("## First try")[1].split("```python\n")[1].split("```")[0]
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102  # The point: it is what a reader would run.
    assert capsys.readouterr().out.strip().endswith("29")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`sparsesecagg ([a-z]+)", README))))
def test_every_command_that_is_named_exists(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(capsys, name, "--help")[0] == 0


@pytest.mark.parametrize("job", sorted(set(re.findall(r"make ([a-z-]+)", README))))
def test_every_make_job_that_is_named_exists(job: str) -> None:
    assert re.search(rf"^{job}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(
    "path", sorted({name for name in re.findall(r"`((?:docs|examples)/[^`]+|[A-Z]+\.md)`", README) if "*" not in name})
)
def test_every_document_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_nothing_names_a_package_host_or_a_folder_of_one_machine() -> None:
    """In files that the project ships; constraints are bare names and versions."""
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line), line
