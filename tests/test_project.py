"""The files around the package agree with it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_yaml(path: str) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def pythons_of_ci() -> list[str]:
    matrix = read_yaml(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    return sorted({*matrix["python"], *(each["python"] for each in matrix["include"])})


def test_every_python_that_is_claimed_is_tested() -> None:
    prefix = "Programming Language :: Python :: 3."
    claimed = [f"3.{name.removeprefix(prefix)}" for name in PROJECT["classifiers"] if name.startswith(prefix)]
    assert pythons_of_ci() == claimed
    assert PROJECT["requires-python"] == f">={claimed[0]}"


def test_a_public_ci_has_every_job() -> None:
    jobs = read_yaml(".github/workflows/ci.yml")["jobs"]
    assert {"lint", "test", "docs", "install-without-constraints"} <= set(jobs)
    run = [step.get("run") for job in jobs.values() for step in job["steps"]]
    assert {"make lint", "make ${{ matrix.job }}", "make docs"} <= set(run)
    matrix = jobs["test"]["strategy"]["matrix"]
    assert {*matrix["job"], *(each["job"] for each in matrix["include"])} == {"pytest", "coverage"}


def test_hooks_and_forms_can_be_read() -> None:
    (local,) = read_yaml(".pre-commit-config.yaml")["repos"]
    assert [hook["id"] for hook in local["hooks"]] == ["ruff", "ruff-format", "mypy"]
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        assert read_yaml(str(path.relative_to(ROOT)))
    assert read_yaml("CITATION.cff")["license"] == PROJECT["license"]


def test_exact_versions_are_for_constraints_only() -> None:
    """So that the package can be installed beside others."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    assert not [name for names in groups for name in names if "==" in name]
    assert "version" in PROJECT["dynamic"]


def test_the_library_does_without_the_packages_of_the_command_line() -> None:
    hidden = "import sys; sys.modules.update(dict.fromkeys(('typer', 'rich', 'click')))"
    code = f"{hidden}; from sparsesecagg import Client, Server, secure_sum; print(secure_sum([[1.0]] * 3).sum())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.stdout.strip() == "[3.]", done.stderr


def test_version_changelog_and_citation_agree() -> None:
    import sparsesecagg
    from release import release_notes

    assert len(release_notes(sparsesecagg.__version__).splitlines()) > 10
    citation = read_yaml("CITATION.cff")
    assert str(citation["version"]) == sparsesecagg.__version__
    assert citation["references"][0]["identifiers"][0]["value"] == "arXiv:2112.12872"


def test_the_support_matrix_names_the_pythons_that_are_tested() -> None:
    page = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| Python |"))
    assert re.findall(r"3\.\d+", row) == pythons_of_ci()
