"""Runs each test of a pattern's suite for each of the pattern's cases."""

from __future__ import annotations

import pytest

from patterns.suite import PatternSuite


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Fill in `case`."""
    if metafunc.cls is not None and issubclass(metafunc.cls, PatternSuite):
        metafunc.parametrize("case", metafunc.cls.cases, ids=str, indirect=True)
