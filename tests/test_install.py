"""The package as a stranger gets it: a wheel, a fresh environment, the newest of every dependency, no constraints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

import sparsesecagg
from sparsesecagg.lab.cli import whole_program

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
ALL = "SPARSESECAGG_TEST_INSTALLS"
SMALL_ROUND = ("simulate", "--clients", "5", "--dim", "50", "--alpha", "1", "--json")


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program as if nobody had set constraints, or a path to this checkout."""
    unset = ("PIP_CONSTRAINT", "PIP_REQUIRE_VIRTUALENV", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(  # noqa: S603
        [str(word) for word in command], capture_output=True, text=True, check=False, env=environment, **options
    )


def pip(*words: str | Path) -> None:
    done = run(sys.executable, "-m", "pip", "--disable-pip-version-check", *words)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that nothing is left behind in the source tree."""
    patient = ("--retries", "0", "--timeout", "5")
    reach = ("install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", *patient, "setuptools>=77")
    found = run(sys.executable, "-m", "pip", "--disable-pip-version-check", *reach)
    if found.returncode:
        pytest.skip("no package index can be reached, and an install needs one")
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    copytree(ROOT / "src", source / "src", ignore=ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", built, source)
    (made,) = built.glob("sparsesecagg-*.whl")
    return made


class Installed:
    """A fresh environment with the wheel in it."""

    def __init__(self, folder: Path, wheel: Path, extra: str = "") -> None:
        venv.create(folder / "venv")
        self.folder = folder
        self._programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        # Python compiles what is imported anyway; all of scikit-learn would take longer than the rest.
        pip("--python", self._programs / "python", "install", "--quiet", "--no-compile", f"{wheel}{extra}")

    def python(self, code: str) -> str:
        """Return what a line of Python prints."""
        done = run(self._programs / "python", "-c", code, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def sparsesecagg(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the program."""
        return run(self._programs / "sparsesecagg", *words, cwd=self.folder)

    def answers(self, lines: Sequence[Sequence[str]]) -> list[Answer]:
        """Return what the program does with each of many command lines, in one process, which is quicker."""
        return [Answer(*found) for found in json.loads(self.python(f"lines = {list(lines)!r}\n{ONE_AFTER_ANOTHER}"))]


class Answer(NamedTuple):
    """How a command ended. A traceback would have ended the whole process."""

    code: int
    out: str
    err: str

    @property
    def is_one_sentence(self) -> bool:
        return (self.code, self.out, self.err.count("\n")) == (2, "", 1)


ONE_AFTER_ANOTHER = """
import contextlib, io, json
from sparsesecagg.lab.cli import main
answers = []
for line in lines:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main(line)
        except SystemExit as end:
            answers.append((end.code, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""

MISTAKES = {
    "simulate --colour red": "--colour is not an option",
    "simulate --dim ten": "--dim must be a whole number",
    "simulate --alpha nothing": "--alpha must be a number",
    "simulate --alpha 2": "--alpha must",
    "simulate --seed -1": "--seed must be at least 0, got -1",
    "simulate --dim": "--dim requires",
    "plan": "--clients is required",
    "reproduce": "NAME is required",
    "nothing": "nothing",
    # What the package does not carry: the data come with an extra, the experiments with the source tree.
    "train --rounds 1": "pip install '.[learn]' in a checkout",
    "reproduce table1": "git clone",
}


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command and group of commands as it is typed."""
    yield path
    for name, below in getattr(command or get_command(whole_program()), "commands", {}).items():
        yield from commands(below, (*path, name))


def test_the_core_alone_installs_and_every_command_answers(wheel: Path, tmp_path: Path) -> None:
    # One test, because a fixture for several would be made anew in every process that pytest runs tests in.
    here = Installed(tmp_path, wheel)
    told = here.sparsesecagg("--version")
    assert (told.returncode, told.stdout) == (0, f"sparsesecagg {sparsesecagg.__version__}\n"), told.stderr
    assert json.loads(here.sparsesecagg(*SMALL_ROUND).stdout)["exact"]
    bad = here.sparsesecagg("simulate", "--colour", "red")
    assert Answer(bad.returncode, bad.stdout, bad.stderr).is_one_sentence
    metadata = here.python("from importlib.metadata import version; print(version('sparsesecagg'))")
    assert metadata == sparsesecagg.__version__
    for path, answer in zip(commands(), here.answers([(*path, "--help") for path in commands()]), strict=True):
        assert answer.code == 0 and " ".join(path) in answer.out
    for named, answer in zip(MISTAKES.values(), here.answers([line.split() for line in MISTAKES]), strict=True):
        assert answer.is_one_sentence and named in answer.err
    alone, group = here.answers([[], ["roster"]])
    assert (alone.code, group.code) == (2, 2)
    assert "simulate" in alone.out and "enrol" in group.out


def test_the_wheel_carries_types_and_the_report_but_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"sparsesecagg/py.typed", "sparsesecagg/lab/report/assets/report.css"} <= set(names)
    assert {name.split("/")[0] for name in names} == {
        "sparsesecagg",
        f"sparsesecagg-{sparsesecagg.__version__}.dist-info",
    }


@pytest.mark.skipif(ALL not in os.environ, reason=f"installs scikit-learn and Plotly; {ALL}=1 asks for it, as CI does")
def test_with_learn_it_trains_and_writes_a_report(wheel: Path, tmp_path: Path) -> None:
    here = Installed(tmp_path, wheel, "[learn]")
    options = ("--clients", "5", "--rounds", "1", "--alpha", "1", "--workers", "1", "--json")
    trained = json.loads(here.sparsesecagg("train", *options).stdout)
    assert (tmp_path / trained["report"]).stat().st_size > 10_000


@pytest.mark.skipif(ALL not in os.environ, reason=f"installs a gigabyte; {ALL}=1 asks for it, as CI does")
def test_with_flower_strategy_and_mod_can_be_imported(wheel: Path, tmp_path: Path) -> None:
    here = Installed(tmp_path, wheel, "[flower]")
    here.python("from sparsesecagg.flower import *")
    assert here.sparsesecagg("--version").returncode == 0
    (bad,) = here.answers([["simulate", "--dim", "ten"]])
    assert bad.is_one_sentence and MISTAKES["simulate --dim ten"] in bad.err


def test_importing_the_package_needs_nothing_that_only_unix_has() -> None:
    code = f"""
import sys
for name in ("resource", "fcntl", "pwd", "grp", "termios"):
    sys.modules[name] = None
import sparsesecagg
from sparsesecagg.lab.cli import main
main({list(SMALL_ROUND)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
