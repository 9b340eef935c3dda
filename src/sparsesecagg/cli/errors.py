"""From an error to one sentence on standard error and an exit code.

Commands raise; `run` ends the program: 2 for bad input, with the option's name and what is allowed; 1 for a failed
round, with the stage and the reason; 130 after Ctrl-C. Everything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
import inspect
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand

from sparsesecagg.errors import InvalidInput, MissingExtra, ProtocolError, RoundFailed

EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_INTERRUPTED: Final = 130

# Up to typer 0.25 these are click's errors, later those of a copy of click inside typer. The class above BadParameter
# is in both the one for all mistakes on a command line.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]

_REFUSED_BY_THE_SYSTEM: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})
_SIZES: Final = ("dim", "clients", "hidden", "samples", "batch")
"""Options that decide how much memory a command takes."""


class Ended(Exception):
    """The end of a command before it is done: the sentence that says why, and the exit code."""

    def __init__(self, sentence: str, code: int = EXIT_FAILED) -> None:
        super().__init__(sentence)
        self.code = code


class _Command(TyperCommand):
    """A command whose errors are explained by its context, which knows its options and their values."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, Ended, _UsageError):
            raise
        except Exception as problem:
            explained = _explained(problem, ctx)
            if explained is None:  # A bug, which has to be seen as it is.
                raise
            raise explained from problem


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a program and exit with its code."""
    for info in _commands(app):
        info.cls = _Command
        # Typer keeps the line breaks of a docstring in all paragraphs but the first.
        info.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(info.callback) or "")
    with _outputs():
        try:
            code = app(args=list(sys.argv[1:] if arguments is None else arguments), standalone_mode=False) or 0
        except (typer.Abort, KeyboardInterrupt):
            code = EXIT_INTERRUPTED
        except Ended as end:
            _exit(str(end), end.code)
        except _UsageError as problem:
            _exit(_usage(problem), EXIT_BAD_INPUT)
        except InvalidInput as problem:  # Of an option's own check, before the command runs.
            _exit(f"{_flag(problem.option)} {problem.problem}", EXIT_BAD_INPUT)
        # Later versions of typer return this code on Ctrl-C, where earlier ones raise Abort.
        if code == EXIT_INTERRUPTED:
            _exit("interrupted, and nothing was kept: the same command starts again", code)
        sys.exit(code)


@contextmanager
def _outputs() -> Iterator[None]:
    """Have "?" written for letters that an output does not know; end in a sentence if nothing more can be written."""
    if sys.stdout is None:
        _exit("standard output must be open, got none", EXIT_FAILED)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as problem:
        if problem.filename is not None or problem.errno not in {errno.EPIPE, *_REFUSED_BY_THE_SYSTEM}:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Else Python fails at the rest when it ends.
        _exit(f"the output can't be written: {problem.strerror}", EXIT_FAILED)


def _commands(app: typer.Typer) -> Iterator[Any]:
    """Yield all commands of a program, those of its groups too."""
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance)


def _exit(sentence: str, code: int) -> NoReturn:
    sentence = " ".join(sentence.split())
    sys.stderr.write(f"sparsesecagg: {sentence}{'' if sentence.endswith(('.', '?')) else '.'}\n")
    sys.exit(code)


def _explained(problem: Exception, context: Any) -> Ended | None:  # noqa: PLR0911 (a table)
    """Return sentence and exit code; None for a bug."""
    match problem:
        case InvalidInput():
            flag = _flag(problem.option)
            known = (each for each in context.command.params if each.name == problem.option or flag in each.opts)
            return Ended(f"{next(map(_typed, known), flag)} {problem.problem}", EXIT_BAD_INPUT)
        case MissingExtra():
            return Ended(str(problem), EXIT_BAD_INPUT)
        case ProtocolError():
            fewer = isinstance(problem, RoundFailed) and "dropout" in context.params
            return Ended(f"the round failed: {problem}{'; lower --dropout' if fewer else ''}")
        case MemoryError():
            sizes = " or ".join(_flag(name) for name in _SIZES if name in context.params)
            return Ended(f"{sizes} must be lower, there is not enough memory: {problem}", EXIT_BAD_INPUT)
        case OSError(filename=str(path), strerror=str(reason)):
            if option := _option_with(Path(path), context):
                return Ended(f"{option} must name a place that can be used, got {path}: {reason}", EXIT_BAD_INPUT)
            if problem.errno in _REFUSED_BY_THE_SYSTEM:
                return Ended(f"{path} can't be used: {reason}")
    return None


def _usage(problem: Any) -> str:
    """Return the sentence for a command line that can't be read."""
    if hasattr(problem, "possibilities") and hasattr(problem, "option_name"):
        near = sorted(problem.possibilities or ())
        hint = f"did you mean {' or '.join(near)}?" if near else "--help lists them"
        return f"{problem.option_name} is not an option: {hint}"
    parameter = getattr(problem, "param", None)
    if parameter is None:
        return re.sub(r"^Option '(.*?)'", r"\1", str(problem.format_message()))
    if hasattr(problem, "param_type"):
        return f"{_typed(parameter)} is required"
    # All versions of typer say so, in words of their own: "'x' is not a valid int", "should be a valid integer".
    if wanted := re.search(r"(?:('.*') is not a )?\bvalid (int|float|number)", str(problem.message)):
        kind, got = "a whole number" if wanted[2] == "int" else "a number", f", got {wanted[1]}" if wanted[1] else ""
        return f"{_typed(parameter)} must be {kind}{got}"
    return f"{_typed(parameter)} can't be read: {problem.message}"


def _option_with(path: Path, context: Any) -> str | None:
    """Return the option or argument that names a path or a folder above it."""
    for each in context.command.params:
        value = context.params.get(each.name)
        for named in value if isinstance(value, list | tuple) else [value]:
            if named and isinstance(named, str | Path) and Path(named) in (path, *path.parents):
                return _typed(each)
    return None


def _flag(parameter: str) -> str:
    return "--" + parameter.replace("_", "-")


def _typed(parameter: Any) -> str:
    """Return a parameter as its help shows it: RUN for an argument, --out for an option."""
    if parameter.param_type_name != "argument":
        return str(next((flag for flag in parameter.opts if flag.startswith("--")), parameter.opts[0]))
    return str(parameter.metavar or parameter.name.upper()).strip("[]….")
