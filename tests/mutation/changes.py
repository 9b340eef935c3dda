"""Small wrongs that can be done to a module: every mutant of a source file, one syntax node changed in each.

Checks come first: each `if …: raise` is switched off, turned round and moved by one; each call that stands alone, such
as `self._require(stage)`, is left out. Then the rest: comparisons, arithmetic, constants, conditions, results. What can
only change words (annotations, docstrings, error texts) or can only crash (names of byte orders) is left alone.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

_OTHER_COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
_OTHER_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
}
_OTHER_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LABELLED = {"digest", "derive", "expand", "_require", "_require_range"}
"""Functions whose string arguments tell uses apart; other strings are words or names that can only crash."""
_JUDGES = {"_require", "_demand"}
"""Functions that raise unless their argument holds."""

Steps = tuple[tuple[str, int | None], ...]
"""The way from the root of a tree to a node: fields, and places in those that are lists."""


@dataclass(frozen=True)
class Mutant:
    """One change to one node of a module's tree."""

    file: str
    function: str
    """Qualified name of the outermost function around it, or `<module>`."""
    line: int
    lines: range
    """The lines of the statement, without the statements inside it."""
    raising: range
    """If it belongs to a check: the lines that a test runs for which the check raises."""
    kind: str
    check: bool
    """Whether it removes or changes a check: a condition that raises, a `raise`, or the call of a check."""
    text: str
    """The source line, and what becomes of the node."""
    number: int
    """Tells mutants of the same text apart."""
    change: Callable[[ast.AST], ast.Module] = field(repr=False, compare=False)
    """Apply the change to the tree that the mutant was made from."""

    @property
    def name(self) -> str:
        """What stays the same when lines move: the key of a judgement."""
        suffix = f" #{self.number}" if self.number > 1 else ""
        return f"{self.file}::{self.function}::{self.text}{suffix}"

    @property
    def at_import(self) -> bool:
        """Whether the changed code runs when the module is imported."""
        return self.function == "<module>"


class Module:
    """A source file and its mutants."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.file = path.relative_to(root).as_posix()
        self.source = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.source)
        self._lines = self.source.splitlines()
        self._functions = dict(self._sources(self.tree, ""))
        self._seen: Counter[tuple[str, str]] = Counter()
        self.mutants = list(self._visit(self.tree, (), "<module>", range(1, 2), range(0), False))

    def source_of(self, mutant: Mutant) -> str:
        """Return the source of the function that a mutant is in, or of the module if it runs at import."""
        return self._functions.get(mutant.function, self.source)

    def compiled(self, mutant: Mutant) -> CodeType:
        """Return the code of the module with one change; line numbers stay."""
        tree = mutant.change(deepcopy(self.tree))
        return compile(ast.fix_missing_locations(tree), str(self.path), "exec", dont_inherit=True)

    def _sources(self, parent: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, str]]:
        for node in parent.body:
            if isinstance(node, ast.FunctionDef):
                yield f"{prefix}{node.name}", "\n".join(self._lines[node.lineno - 1 : node.end_lineno])
            elif isinstance(node, ast.ClassDef):
                yield from self._sources(node, f"{prefix}{node.name}.")

    def _visit(
        self, parent: ast.AST, path: Steps, function: str, lines: range, raising: range, check: bool
    ) -> Iterator[Mutant]:
        for name, index, node in _children(parent):
            place = (*path, (name, index))
            if isinstance(node, ast.stmt):
                lines, raising, check = _own_lines(node), _raising_lines(node), False
            elif isinstance(node, ast.ExceptHandler):
                lines = range(node.lineno, node.lineno + 1)
            inside = _within(parent, name, node, function)
            judged = check or _is_check(parent, name, node)
            for kind, change in _changes(node, parent, name):
                changed = deepcopy(node)
                changed = change(changed)
                before, after = ast.unparse(node).splitlines()[0], ast.unparse(changed).splitlines()[0]
                text = f"{self._lines[node.lineno - 1].strip()} ⟶ {before} → {after}"
                self._seen[inside, text] += 1
                yield Mutant(
                    file=self.file,
                    function=inside,
                    line=node.lineno,
                    lines=lines,
                    raising=raising,
                    kind=kind,
                    check=judged or _raises(node),
                    text=text,
                    number=self._seen[inside, text],
                    change=_at(place, change),
                )
            yield from self._visit(node, place, inside, lines, raising, judged)


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None, Any]]:
    """Yield the nodes that may be changed: field, place in it, node."""
    if isinstance(parent, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)):
        return
    if isinstance(parent, ast.Assign) and getattr(parent.targets[0], "id", "") == "__all__":
        return
    if isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "TypeVar":
        return
    if isinstance(parent, ast.keyword) and parent.arg == "strict":
        return  # `zip(…, strict=True)` asserts what holds, like `assert`.
    for name, value in ast.iter_fields(parent):
        if name in ("annotation", "returns", "ctx", "ops", "op"):
            continue
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # A docstring.
            if isinstance(node, ast.AST):
                yield name, index if isinstance(value, list) else None, node


def _within(parent: ast.AST, name: str, node: ast.AST, function: str) -> str:
    """Return the outermost function that a node's code belongs to; its defaults and decorators run outside."""
    if isinstance(parent, ast.ClassDef) and function.startswith("<"):
        if isinstance(node, ast.FunctionDef):
            return f"<{parent.name}.{node.name}>"
        return function
    if isinstance(node, ast.FunctionDef) and function == "<module>":
        return f"<{node.name}>"
    if isinstance(parent, ast.FunctionDef) and function.startswith("<") and function != "<module>":
        return function[1:-1] if name == "body" else "<module>"
    return function


def _own_lines(node: ast.stmt) -> range:
    body = getattr(node, "body", None)
    end = body[0].lineno - 1 if body and body[0].lineno > node.lineno else node.end_lineno or node.lineno
    return range(node.lineno, max(end, node.lineno) + 1)


def _raising_lines(node: ast.stmt) -> range:
    if not isinstance(node, ast.If) or not _raises(node):
        return range(0)
    return range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)


def _is_check(parent: ast.AST, name: str, node: ast.AST) -> bool:
    if isinstance(parent, ast.If) and name == "test":
        return _raises(parent)
    if isinstance(parent, ast.Call) and name == "args" and getattr(parent.func, "id", "") in _JUDGES:
        return not isinstance(node, ast.Constant)
    return isinstance(parent, ast.ExceptHandler) and name == "type"


def _at(path: Steps, change: Callable[[Any], ast.AST]) -> Callable[[ast.AST], ast.Module]:
    def apply(tree: Any) -> ast.Module:
        parent = tree
        for name, index in path[:-1]:
            parent = getattr(parent, name) if index is None else getattr(parent, name)[index]
        name, index = path[-1]
        if index is None:
            setattr(parent, name, change(getattr(parent, name)))
        else:
            getattr(parent, name)[index] = change(getattr(parent, name)[index])
        assert isinstance(tree, ast.Module)
        return tree

    return apply


def _raises(node: ast.AST) -> bool:
    """Whether a statement is there to raise."""
    match node:
        case ast.Raise():
            return True
        case ast.If(body=[*_, ast.Raise()]):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called))):
            return called.lstrip("_").startswith(("check", "require", "demand", "verify"))
    return False


Changes = Iterator[tuple[str, Callable[[Any], ast.AST]]]


def _changes(node: ast.AST, parent: ast.AST, name: str) -> Changes:
    """Yield the changes of one node: what kind, and how to make it."""
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            yield from _condition_changes(node)
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                for other in _OTHER_COMPARISONS[type(operator)]:
                    yield "comparison", partial(_with_comparison, place, other)
        case ast.BoolOp(op=operator, values=values):
            other_op = ast.Or if isinstance(operator, ast.And) else ast.And
            yield "and/or", lambda n: _set(n, "op", other_op())
            for place in range(len(values)):
                yield "condition dropped", partial(_without, place)
        case ast.UnaryOp(op=ast.Not()) if not isinstance(parent, (ast.If, ast.While, ast.IfExp)):
            yield "negation", lambda n: n.operand
        case ast.BinOp(op=ast.BitOr(), right=ast.Name()) if isinstance(parent, (ast.Assign, ast.BinOp)):
            pass  # A union of types.
        case ast.BinOp() | ast.AugAssign():
            yield "arithmetic", lambda n: _set(n, "op", _OTHER_ARITHMETIC[type(n.op)]())
            if isinstance(node, ast.AugAssign):
                yield "statement removed", lambda n: ast.copy_location(ast.Pass(), n)
        case ast.Constant(value=value):
            yield from _constant_changes(value, parent, name)
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield "result", lambda n: _set(n, "value", ast.Constant(None))
        case ast.Raise():
            if not (isinstance(parent, ast.If) and len(parent.body) == 1 and name == "body"):
                yield "raise removed", lambda n: ast.copy_location(ast.Pass(), n)
        case ast.Expr(value=ast.Call()):
            yield "statement removed", lambda n: ast.copy_location(ast.Pass(), n)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AnnAssign(target=ast.Attribute()):
            yield "statement removed", lambda n: ast.copy_location(ast.Pass(), n)
        case ast.Call(func=ast.Name(id=called)) if called in _OTHER_CALLS:
            yield "call", lambda n: _set(n, "func", ast.Name(_OTHER_CALLS[n.func.id], ast.Load()))
        case ast.Continue():
            yield "jump", lambda n: ast.copy_location(ast.Break(), n)
        case ast.Break():
            yield "jump", lambda n: ast.copy_location(ast.Continue(), n)
        case ast.Tuple(elts=elements) if isinstance(parent, ast.ExceptHandler):
            for place in range(len(elements)):
                yield "exception let through", partial(_without_exception, place)


def _condition_changes(node: ast.If | ast.While | ast.IfExp) -> Changes:
    """Turn a condition round; switch a check off."""
    if _raises(node):
        yield "check removed", lambda n: _set(n, "test", ast.copy_location(ast.Constant(False), n.test))
    single = isinstance(node.test, ast.Compare) and len(node.test.ops) == 1
    if not single:  # Otherwise a comparison turned round is the same.
        yield "condition turned round", lambda n: _set(n, "test", _negated(n.test))


def _constant_changes(value: object, parent: ast.AST, name: str) -> Changes:
    if isinstance(value, bool):
        yield "constant", lambda n: _set(n, "value", not n.value)
    elif isinstance(value, int):
        yield "constant", lambda n: _set(n, "value", n.value + 1)
        if isinstance(parent, ast.Compare) and value > 0:
            yield "constant", lambda n: _set(n, "value", n.value - 1)
    elif isinstance(value, float):
        yield "constant", lambda n: _set(n, "value", n.value * 1.5 + 0.25)
    elif isinstance(value, bytes):
        yield "constant", lambda n: _set(n, "value", n.value + b"x")
    elif isinstance(value, str):
        called = getattr(parent.func, "id", "") if isinstance(parent, ast.Call) and name == "args" else ""
        labels = called in _LABELLED and (called not in _JUDGES or value.isidentifier())  # Not an error's text.
        if labels or (isinstance(parent, ast.keyword) and parent.arg == "tag"):
            yield "constant", lambda n: _set(n, "value", n.value + "x")


def _set(node: Any, name: str, value: Any) -> ast.AST:
    setattr(node, name, value)
    assert isinstance(node, ast.AST)
    return node


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _with_comparison(place: int, other: type[ast.cmpop], node: ast.Compare) -> ast.AST:
    return _set(node, "ops", [*node.ops[:place], other(), *node.ops[place + 1 :]])


def _without_exception(place: int, node: ast.Tuple) -> ast.AST:
    return _set(node, "elts", [*node.elts[:place], *node.elts[place + 1 :]])


def _without(place: int, node: ast.BoolOp) -> ast.expr:
    left = [*node.values[:place], *node.values[place + 1 :]]
    return left[0] if len(left) == 1 else ast.copy_location(ast.BoolOp(node.op, left), node)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
