"""No floating point takes part in a pattern: two machines must agree bit for bit.

Read from the source itself. What a pattern tells about itself is for people and planners, and may be a float.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparsesecagg.crypto
import sparsesecagg.patterns

REPORTS = {"alpha", "fraction", "coverage", "upload_size", "default_threshold", "problem"}
"""Methods that describe a pattern or a sum in floats; nothing that makes one may call them."""

FILES = sorted(Path(sparsesecagg.patterns.__file__).parent.glob("*.py"))
FILES += [Path(sparsesecagg.crypto.__file__).parent / "stream.py"]


def made_of_floats(tree: ast.AST) -> Iterator[str]:
    """Name every use of floating point outside reports, error texts and type annotations."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Raise):
                continue
            if isinstance(node, ast.FunctionDef) and node.name in REPORTS:
                continue
            match node:
                case ast.Constant(value=float() as number):
                    yield f"the literal {number}"
                case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                    yield f"a true division in line {node.lineno}"
                case ast.Name(id=used) | ast.Attribute(attr=used) if "float" in used or used in REPORTS:
                    yield f"{used} in line {node.lineno}"
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
    "code",
    [
        *("x = 0.5", "y = 1 / 2", "z /= 3", "float(1)", "np.float64(1)", "from math import log", "rng.random()"),
        "def sizes(self):\n    return self.fraction()",
    ],
)
def test_the_check_itself_finds_floats(code: str) -> None:
    assert list(made_of_floats(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["def fraction(self) -> float:\n    return 0.5", "raise ValueError(f'{1 / 3}')", "def f(x: float): ..."]
)
def test_reports_errors_and_annotations_may_speak_of_floats(code: str) -> None:
    assert list(made_of_floats(ast.parse(code))) == []
