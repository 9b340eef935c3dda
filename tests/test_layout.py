"""Package layout: imports point one way, every package maps its modules, and the core needs none of the extras."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "sparsesecagg"
SOURCE = Path(__file__).parent.parent / "src" / PACKAGE

PRODUCT = (
    "field",
    "crypto",
    "rounding",
    "ranges",
    "privacy",
    "patterns",
    "protocol",
    "simulate",
    "downlink",
    "planning",
    "flower",
    "cli",
)
LAB = ("lab.audit", "lab.learning", "lab.attacks", "lab.report", "lab.cli")
PACKAGES = [*PRODUCT, *LAB]
"""In order of dependency: a package may import itself and those before it. So the product never imports the lab."""

CORE = PACKAGES[: PACKAGES.index("planning") + 1]
"""Packages that work with numpy, cryptography and msgspec alone."""

EXTRAS = {"torch", "flwr", "sklearn", "plotly", "matplotlib", "pooch", "ray", "scipy"}
COMMON = {"errors", "files"}
"""What any package may use."""
DOORS = {"__init__": "planning", "lab": "lab.audit"}
"""Modules that show a package to the outside; they may import what that package may."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def home_of(parts: tuple[str, ...]) -> str:
    """Return the package of a module; those of the lab lie inside another."""
    return ".".join(parts[:2]) if ".".join(parts[:2]) in PACKAGES else parts[0]


def home(path: Path) -> str:
    return home_of(path.relative_to(SOURCE).with_suffix("").parts)


def core_modules() -> list[Path]:
    return [path for path in modules() if home(path) in {*CORE, *COMMON}]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, at_module_level: bool = False) -> tuple[str, ...]:
    """Return the full names of all that a module imports, in functions too unless told otherwise."""
    tree = parsed(path)
    nodes = list(run_on_import(tree)) if at_module_level else list(ast.walk(tree))
    home = [PACKAGE, *path.relative_to(SOURCE).parent.parts]
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = home[: len(home) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from sparsesecagg import protocol` names a package, `from sparsesecagg.protocol import Client` does not.
            found += [f"{module}.{alias.name}" if module == PACKAGE else module for alias in node.names]
    return tuple(found)


def run_on_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk what runs when a module is imported: no function bodies, nothing that is there for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from run_on_import(node)


def package_of(module: str) -> str | None:
    """Return the package of `sparsesecagg.…`, the name of a module outside the packages, or None for other packages."""
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    # `from sparsesecagg import secure_sum` uses the front door.
    package = home_of(tuple(parts[1:])) if len(parts) > 1 else ""
    return package if package in {*PACKAGES, *COMMON, *DOORS} else "__init__"


def test_every_module_lives_in_a_package() -> None:
    """So that a new package has to say where it stands."""
    homes = {home(path) for path in modules()}
    assert homes <= {*PACKAGES, *COMMON, *DOORS}
    assert set(CORE) <= homes


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    own = home(path)
    allowed: set[str] = set()
    if own not in COMMON:
        place = PACKAGES.index(DOORS.get(own, own))
        allowed = {
            *COMMON,
            *PACKAGES[: place + 1],
            *(door for door, package in DOORS.items() if PACKAGES.index(package) < place),
        }
    used = {package for module in imports(path) if (package := package_of(module)) is not None}
    assert used <= allowed


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("__init__.py")), ids=name_of)
def test_every_package_maps_its_modules(path: Path) -> None:
    """In its docstring, so that somebody new finds the way."""
    text = ast.get_docstring(parsed(path)) or ""
    named = set(re.findall(r"\w+", text))
    inside = {each.stem for each in path.parent.glob("*.py")} - {"__init__", "__main__"}
    assert inside <= named, f"not named: {sorted(inside - named)}"


def test_a_class_name_means_one_thing() -> None:
    nodes = [node for path in modules() for node in parsed(path).body]
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    assert {name for name, count in names.items() if count > 1} == set()


def test_no_file_of_the_product_is_too_long_to_read() -> None:
    long = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {name: lines for name, lines in long.items() if lines > 400 and not name.startswith("lab.")} == {}


PATTERN_NAMES = re.compile(
    r"""(==|!=|\bin\b|\bis\b) [\[({]?'(sliced|full|pairwise)'|isinstance\([^)]*\b(Sliced|Pairwise|Full)\b"""
)


@pytest.mark.parametrize("path", [path for path in modules() if home(path) not in ("patterns",)], ids=name_of)
def test_nobody_but_patterns_tells_patterns_apart(path: Path) -> None:
    """A pattern is one class in one file: whoever needs to know more asks it."""
    code = "\n".join(ast.unparse(node) for node in parsed(path).body)
    assert not PATTERN_NAMES.search(code)


@pytest.mark.parametrize("path", core_modules(), ids=name_of)
def test_no_module_of_the_core_imports_an_extra_at_all(path: Path) -> None:
    """Not even in a function."""
    assert not {module.split(".")[0] for module in imports(path)} & EXTRAS


def test_the_check_sees_what_it_must(tmp_path: Path) -> None:
    """Imports in functions, relative ones, and those for type checkers."""
    path = SOURCE / "crypto" / "imaginary.py"
    code = "import torch\nfrom ..protocol import x\nfrom . import kdf\ndef f():\n    from sparsesecagg import cli\n"
    code += "if TYPE_CHECKING:\n    import flwr\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", lambda *_, **__: code)
        everything, on_import = imports(path), imports(path, at_module_level=True)
    assert set(everything) == {
        "torch",
        "sparsesecagg.protocol",
        "sparsesecagg.crypto",
        "sparsesecagg.cli",
        "flwr",
    }
    assert set(on_import) == {"torch", "sparsesecagg.protocol", "sparsesecagg.crypto"}


BLOCK = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def run_without_extras(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that has none of the extras."""
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, check=False)  # noqa: S603


def test_without_the_extras_the_whole_core_imports_and_adds() -> None:
    names = [f"{PACKAGE}.{name_of(path)}".removesuffix(".__init__") for path in core_modules()]
    code = f"""
import importlib
for name in {names!r}:
    importlib.import_module(name)
import numpy as np
from sparsesecagg import Parameters, RoundOptions, run_round
params = Parameters.create(4, 10, RoundOptions(pattern="full"))
outcome = run_round(params, [np.full(10, 0.5)] * 4)
assert outcome.exact
"""
    done = run_without_extras(code)
    assert done.returncode == 0, done.stderr


def test_without_the_extras_every_package_imports() -> None:
    """Extras are asked for when they are used."""
    done = run_without_extras("\n".join(f"import {PACKAGE}.{package}" for package in PACKAGES if package != "flower"))
    assert done.returncode == 0, done.stderr


def test_without_flower_importing_it_says_which_extra_is_missing() -> None:
    done = run_without_extras("import sparsesecagg.flower")
    assert done.returncode == 1
    assert "pip install '.[flower]'" in done.stderr.strip().splitlines()[-1]


def test_the_block_works() -> None:
    assert "No module named 'torch'" in run_without_extras("import torch").stderr
