"""Mutants meet the tests that might notice them, each in a fork of its own; no file is touched.

Tests are collected once. A fork puts the changed code into the functions that exist already. Code that runs at import
is changed in a fork that has imported nothing of ours yet.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, FunctionType
from typing import Any

# Imported before the first fork, because every fork needs them.
import msgspec  # noqa: F401
import numpy as np  # noqa: F401
import pytest
from _pytest.runner import runtestprotocol
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519  # noqa: F401

from mutation import SOURCE
from mutation.changes import Module, Mutant
from mutation.coverage import PYTEST, TRACED, FewExamples, Lines, is_ours, test_files, tests_of
from mutation.forks import in_forks, within_limits
from mutation.results import note


@dataclass(frozen=True)
class Limits:
    """How long to hunt."""

    budget: float
    """Seconds of tests for one mutant; slower ones are left out, and what only those would notice survives."""
    deadline: float
    """When to stop, on the monotonic clock."""

    @property
    def cpu_seconds(self) -> int:
        """After this a mutant has hung: its tests took less even under the tracer."""
        return int(TRACED * self.budget) + 3

    @property
    def over(self) -> bool:
        """Whether time is up."""
        return time.monotonic() > self.deadline


def work(modules: dict[str, Module], mutants: list[Mutant], tests: Lines, limits: Limits) -> dict[str, str]:
    """Return what became of each mutant: what noticed it, "timeout", or "" for a survivor."""
    inside = [mutant for mutant in mutants if not mutant.at_import]
    hunter = _Hunter(modules, inside, tests, limits)
    (found,) = in_forks([hunter.run])
    for mutant in [mutant for mutant in mutants if mutant.at_import]:
        if limits.over:
            break
        module = modules[mutant.file]
        found[mutant.name] = note(module, mutant, _meet_at_import(module, mutant, tests, limits))
    assert isinstance(found, dict)
    return found


class _Hunter(FewExamples):
    """Instead of running the tests, lets every mutant meet those that might notice it."""

    def __init__(self, modules: dict[str, Module], mutants: list[Mutant], tests: Lines, limits: Limits) -> None:
        self._modules, self._mutants, self._tests, self._limits = modules, mutants, tests, limits
        self._found: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Collect the tests and hunt."""
        if self._mutants:
            pytest.main([*PYTEST, *map(str, test_files())], plugins=[self])
        return self._found

    def pytest_runtestloop(self, session: Any) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        for value in gc.get_objects():
            if isinstance(value, FunctionType) and is_ours(value.__code__.co_filename):
                functions[_place(value.__code__)].append(value)
        noticed_by: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for mutant in self._mutants:
            if self._limits.over:
                break
            module, here = self._modules[mutant.file], noticed_by[mutant.file, mutant.function]
            chosen = [items[test] for test in tests_of(module.path, mutant, self._tests, here, self._limits.budget)]
            code = _code_of(module.compiled(mutant), mutant.function)
            outcome = within_limits(partial(_meet, functions[_place(code)], code, chosen), self._limits.cpu_seconds)
            self._found[mutant.name] = note(module, mutant, outcome)
            if outcome in items:
                here[outcome] += 1
        return True


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _code_of(outer: CodeType, function: str) -> CodeType:
    """Return the code of a function inside that of a module or class, by its qualified name."""
    for code in [const for const in outer.co_consts if isinstance(const, CodeType)]:
        if code.co_qualname == function:
            return code
        if function.startswith(f"{code.co_qualname}."):
            return _code_of(code, function)
    raise LookupError(function)


def _meet(functions: list[FunctionType], code: CodeType, items: list[Any]) -> str:
    """Change the functions; return the first test that fails, or nothing."""
    assert functions, code.co_qualname
    for function in functions:
        function.__code__ = code
    for item in items:
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=None)):
            return str(item.nodeid)
    return ""


def _meet_at_import(module: Module, mutant: Mutant, tests: Lines, limits: Limits) -> str:
    """Import everything afresh, one module changed, and run the tests of that module."""
    name = ".".join(module.path.relative_to(SOURCE.parent).with_suffix("").parts)
    code = module.compiled(mutant)

    class Changed(SourceFileLoader):
        def get_code(self, _: str) -> CodeType:
            return code

    class Finder:
        @staticmethod
        def find_spec(wanted: str, *_: Any) -> ModuleSpec | None:
            if wanted != name:
                return None
            return importlib.util.spec_from_file_location(name, module.path, loader=Changed(name, str(module.path)))

    def meet() -> str:
        sys.meta_path.insert(0, Finder)
        chosen = tests_of(module.path, mutant, tests, Counter(), limits.budget)
        ended = pytest.main([*PYTEST, "-x", *chosen], plugins=[FewExamples()])
        return "" if ended == pytest.ExitCode.OK else "a test of the module"

    return within_limits(meet, limits.cpu_seconds)
