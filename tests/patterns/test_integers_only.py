"""No floating point takes part in a pattern: two machines must agree bit for bit.

Read from the source itself. What a pattern tells about its own probability is for people and may be a float.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparsesecagg.crypto
import sparsesecagg.patterns

PLAIN_REPORTS = {"selection_probability"}
"""Functions that describe a pattern in floats; nothing that makes one may call them."""

FIGURES = {"tails.py", "anonymity.py"}
"""Files of probabilities about patterns: for people, planners and policies, not for what users must agree on."""

FILES = sorted(path for path in Path(sparsesecagg.patterns.__file__).parent.glob("*.py") if path.name not in FIGURES)
FILES += [Path(sparsesecagg.crypto.__file__).parent / "stream.py"]


def made_of_floats(tree: ast.AST) -> Iterator[str]:
    """Name every use of floating point outside the plain reports."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in PLAIN_REPORTS:
            continue
        match node:
            case ast.Constant(value=float() as value):
                yield f"the literal {value}"
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield f"a true division in line {node.lineno}"
            case ast.Name(id=name) | ast.Attribute(attr=name) if "float" in name or name in PLAIN_REPORTS:
                yield f"{name} in line {node.lineno}"
            case ast.ImportFrom(module="math") if {alias.name for alias in node.names} - {"isqrt", "gcd", "comb"}:
                yield f"math in line {node.lineno}"
            case ast.Import() if "math" in {alias.name for alias in node.names}:
                yield f"math in line {node.lineno}"
            case ast.Attribute(attr="mean" | "random" | "exp" | "log" | "sqrt" | "floor" | "ceil" | "linspace"):
                yield f"{node.attr} in line {node.lineno}"
        yield from made_of_floats(node)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_patterns_and_masks_are_made_of_integers(path: Path) -> None:
    assert list(made_of_floats(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "code", ["x = 0.5", "y = 1 / 2", "z /= 3", "float(1)", "np.float64(1)", "from math import log", "rng.random()"]
)
def test_the_check_itself_finds_floats(code: str) -> None:
    assert list(made_of_floats(ast.parse(code)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_that_makes_a_pattern_uses_figures_about_it(path: Path) -> None:
    modules = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
    assert not modules & {f"sparsesecagg.patterns.{name.removesuffix('.py')}" for name in FIGURES}


def test_a_report_may_use_floats_but_nobody_may_use_the_report() -> None:
    report = "def selection_probability():\n    return 0.5\n"
    assert list(made_of_floats(ast.parse(report))) == []
    assert list(made_of_floats(ast.parse(report + "x = selection_probability()")))
