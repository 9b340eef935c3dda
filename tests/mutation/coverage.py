"""Which tests run which lines: every test runs once under a tracer, so that a mutant meets only those that can notice.

What a file of tests has run is kept until it or the package changes.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from mutation import CACHE, PACKAGES, ROOT, SOURCE
from mutation.changes import Mutant
from mutation.forks import in_forks

TESTS = (
    "crypto",
    "patterns",
    "protocol",
    "privacy",
    "vectors/test_vectors.py",
    "vectors/test_failures.py",
    "test_hygiene.py",
    "simulate/test_saved_run.py",
    "planning/test_noise.py",
)
LEFT_OUT = (
    "not (fifty_thousand or random_schedules or no_interleaving or every_round_of_a_run or thirty_per_cent "
    "or how_many_are_tried or test_memory or allocation or millisecond)"
)
"""Tests that take long or measure the machine."""
EXAMPLES = 20
"""Of each Hypothesis test: most of what it finds, it finds early."""
TRACED = 5
"""A test takes about so many times as long under the tracer, which its seconds are measured with."""
PYTEST = [
    *("-o", "addopts=", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-qq", "-s", "-k", LEFT_OUT),
    *("-p", "no:xdist", "-p", "no:timeout", "-p", "no:cacheprovider", "--rootdir", str(ROOT)),
]

Lines = dict[str, tuple[float, dict[str, set[int]]]]
"""By test: its seconds, and the lines that it runs in each file."""


def is_ours(filename: str) -> bool:
    """Tell whether code comes from this package."""
    return f"{os.sep}sparsesecagg{os.sep}" in filename


def test_files() -> list[Path]:
    """Return the files whose tests take part."""
    chosen = [ROOT / "tests" / test for test in TESTS]
    return [path for each in chosen for path in (sorted(each.glob("test_*.py")) if each.is_dir() else [each])]


class FewExamples:
    """Cuts Hypothesis tests short: fewer examples, and no smaller ones once one has failed."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Change the settings of all tests that have more."""
        for item in items:
            test: Any = getattr(item, "obj", None)
            test = getattr(test, "__func__", test)
            chosen: Any = getattr(test, "_hypothesis_internal_use_settings", None) or hypothesis.settings.default
            if hasattr(test, "hypothesis") and chosen.max_examples > EXAMPLES:
                test._hypothesis_internal_use_settings = hypothesis.settings(
                    chosen, max_examples=EXAMPLES, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate)
                )


class _Recorder(FewExamples):
    """Notes for each test how long it takes and which lines of ours it runs; writes a file of tests down at its end."""

    def __init__(self, files: dict[Path, Path]) -> None:
        self.files, self.folders = files, {str(SOURCE / package) for package in PACKAGES}
        self.tests: Lines = {}
        self.failed: list[str] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Iterator[None]:
        lines: dict[str, set[int]] = defaultdict(set)

        def local(frame: Any, event: str, _: Any) -> Any:
            if event == "line":
                lines[frame.f_code.co_filename].add(frame.f_lineno)
            return local

        def trace(frame: Any, _event: str, _: Any) -> Any:
            return local if is_ours(frame.f_code.co_filename) else None

        start = time.process_time()
        sys.settrace(trace)
        threading.settrace(trace)
        yield
        sys.settrace(None)
        threading.settrace(None)
        ours = {file: seen for file, seen in lines.items() if str(Path(file).parent) in self.folders}
        self.tests[item.nodeid] = (time.process_time() - start, ours)
        if nextitem is None or nextitem.path != item.path:
            if not self.failed:
                self.files[item.path].write_bytes(pickle.dumps(self.tests))
            self.tests = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def record(jobs: int) -> Lines:
    """Return the lines of all tests; run those that have changed since they were last recorded."""
    source = LEFT_OUT + "".join(path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))
    files = {
        path: CACHE / f"{hashlib.sha256((source + path.read_text(encoding='utf-8')).encode()).hexdigest()}.lines"
        for path in test_files()
    }
    missing = [path for path, cached in files.items() if not cached.exists()]
    in_forks([partial(_record, missing[start::jobs], files) for start in range(jobs)])
    tests: Lines = {}
    for cached in files.values():
        tests |= pickle.loads(cached.read_bytes())  # noqa: S301  # Written by ourselves.
    return tests


def _record(paths: list[Path], files: dict[Path, Path]) -> None:
    """Run some files of tests, and write down the lines of ours that each test runs."""
    recorder = _Recorder(files)
    if paths:
        pytest.main([*PYTEST, *map(str, paths)], plugins=[recorder])
    if recorder.failed:
        raise SystemExit(f"these fail without any mutant: {', '.join(recorder.failed)}")
    for path in paths:
        if not files[path].exists():  # All of its tests are left out.
            files[path].write_bytes(pickle.dumps({}))


def tests_of(path: Path, mutant: Mutant, tests: Lines, first: Counter[str], budget: float) -> list[str]:
    """Return the tests that run the mutant's statement (at import: any of its file), as `budget` seconds allow.

    Those come first that have noticed most mutants so far (`first`), then those for which the check raises, those in
    the file that mirrors the module, and the quick ones.
    """
    lines, raising = set(mutant.lines), set(mutant.raising)
    running = []
    for test, (seconds, files) in tests.items():
        seen = files.get(str(path), set())
        mirrors = f"test_{path.stem}" in test
        if (seen or mirrors) if mutant.at_import else lines & seen:
            running.append((-first[test], not raising & seen, not mirrors, seconds, test))
    chosen, total = [], 0.0
    for *_, seconds, test in sorted(running):
        total += seconds / TRACED
        if total > budget:
            break
        chosen.append(test)
    return chosen
