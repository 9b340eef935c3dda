"""What the source of a Flower app says about secure aggregation, read without running any of it.

Both sides are found through `[tool.flwr.app.components]`. Their files are parsed, not imported: an app may load data
sets and models when it is, and a doctor should not need them.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparsesecagg.errors import InvalidInput

PROJECT = "pyproject.toml"
MOD, STRATEGY = "secagg_mod", "SecAgg"


@dataclass(frozen=True)
class Side:
    """One side of the app: its file, and the calls in it."""

    path: Path
    calls: tuple[ast.Call, ...]
    decorators: tuple[ast.expr, ...] = ()
    """Of functions."""

    def named(self, name: str) -> list[ast.Call]:
        """Return the calls of a name, also as an attribute of something."""
        return [call for call in self.calls if _name(call.func) == name]


@dataclass(frozen=True)
class App:
    """A Flower app's project file and both of its sides."""

    folder: Path
    project: dict[str, Any]
    client: Side
    server: Side
    dependencies: tuple[str, ...] = field(default=())

    @property
    def requirement(self) -> str | None:
        """How the app asks for this package; None if it does not."""
        return next((line for line in self.dependencies if _package(line) == "sparsesecagg"), None)

    @property
    def has_source(self) -> bool:
        """Whether `[tool.uv.sources]` says where the package comes from."""
        return "sparsesecagg" in self.project.get("tool", {}).get("uv", {}).get("sources", {})


def read_app(folder: Path) -> App:
    """Read an app; raises `InvalidInput` for what is none."""
    path = folder / PROJECT
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InvalidInput("app", f"must be the folder of a Flower app, and {str(folder)!r} has no {PROJECT}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InvalidInput("app", f"has a {PROJECT} that can't be read: {problem}") from None
    components = project.get("tool", {}).get("flwr", {}).get("app", {}).get("components", {})
    sides = {}
    for name in ("clientapp", "serverapp"):
        target = components.get(name)
        if not isinstance(target, str) or ":" not in target:
            raise InvalidInput("app", f"has no {name} in [tool.flwr.app.components] of {PROJECT}: is it a Flower app?")
        sides[name] = _read_side(folder, target.partition(":")[0], name)
    listed = project.get("project", {}).get("dependencies", [])
    return App(folder, project, sides["clientapp"], sides["serverapp"], tuple(map(str, listed)))


def mods_of(side: Side, kind: str) -> list[list[str]]:
    """Return the names of the mods around each function of a kind (train, evaluate), the app's own included."""
    everywhere = [name for call in side.named("ClientApp") for name in _mods(call)]
    found = []
    for decorator in side.decorators:
        call = decorator if isinstance(decorator, ast.Call) else None
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(target, ast.Attribute) and target.attr == kind:
            found.append(everywhere + (_mods(call) if call else []))
    return found


def argument(call: ast.Call, name: str) -> object:
    """Return a literal keyword argument of a call; None if it is missing or no literal."""
    for keyword in call.keywords:
        if keyword.arg == name:
            try:
                return ast.literal_eval(keyword.value)
            except ValueError:
                return ...
    return None


def wrapped(call: ast.Call) -> tuple[str, ast.Call | None]:
    """Return the name of the strategy inside `SecAgg(...)`, and its call where it stands right there."""
    inner = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "strategy"), None)
    if isinstance(inner, ast.Call):
        return _name(inner.func), inner
    return (inner.id if isinstance(inner, ast.Name) else ""), None


def _read_side(folder: Path, module: str, name: str) -> Side:
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except OSError:
        raise InvalidInput("app", f"names {module} as its {name}, and {str(path)!r} can't be read") from None
    except (SyntaxError, ValueError) as problem:
        raise InvalidInput("app", f"has a {name} that Python can't read: {path.name}: {problem}") from None
    calls = tuple(node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return Side(path, calls, tuple(_decorators(tree)))


def _decorators(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from node.decorator_list


def _mods(call: ast.Call) -> list[str]:
    for keyword in call.keywords:
        if keyword.arg == "mods" and isinstance(keyword.value, ast.List | ast.Tuple):
            return [_name(each.func if isinstance(each, ast.Call) else each) for each in keyword.value.elts]
    return []


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _package(requirement: str) -> str:
    found = re.match(r"\s*([A-Za-z0-9._-]+)", requirement)
    return re.sub(r"[-_.]+", "-", found[1]).lower() if found else ""
