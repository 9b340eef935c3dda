"""From an error to one sentence on standard error and an exit code.

Commands raise; `run` ends the program: 2 for bad input, with the option's name and what is allowed; 1 for a failed
round, with the stage and the reason; 130 after Ctrl-C. Everything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand

from sparsesecagg.errors import (
    InvalidInput,
    MissingExtra,
    PolicyViolation,
    ProtocolError,
    ThresholdNotMet,
    TooLittleOpened,
)

EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_INTERRUPTED: Final = 130

# Up to typer 0.25 these are click's errors, later those of a copy of click inside typer. The class above BadParameter
# is in both the one for all mistakes on a command line.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]

_REFUSED_BY_THE_SYSTEM: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})
_SIZES: Final = ("dim", "clients", "hidden", "samples", "batch")
"""Options that decide how much memory a command takes."""


_REMEDIES: Final[dict[type[ProtocolError], tuple[str, ...]]] = {
    ThresholdNotMet: ("lower --dropout", "lower --threshold"),
    TooLittleOpened: ("lower --dropout", "lower --threshold"),
    PolicyViolation: ("raise --clients", "raise --group-size", "raise --threshold"),
}
"""What would keep a round from failing in this way."""


class Interrupted(Exception):
    """Ctrl-C in a command that can be resumed; the text says how."""


class Failed(Exception):
    """A command that could not do what it was asked for, through no fault of its options; the text says why."""


class NeedsSourceTree(Exception):
    """A command whose files are not part of the installed package; the text says where they are."""


class _Failure(Exception):
    """What a command raised, with the command's context, which knows its options and their values."""

    def __init__(self, context: Any, problem: Exception) -> None:
        self.context, self.problem = context, problem


class _Command(TyperCommand):
    """A command whose errors come with its context."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as problem:
            raise _Failure(ctx, problem) from problem


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a program and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for info in _commands(app):
        info.cls = _Command
        # Typer keeps the line breaks of a docstring in all paragraphs but the first.
        info.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(info.callback) or "")
    try:
        code = app(args=words, standalone_mode=False) or 0
    except (typer.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except _Failure as failure:
        explained = _explain(failure.problem, failure.context)
        if explained is None:
            raise failure.problem from None
        _complain(explained[0])
        sys.exit(explained[1])
    except _UsageError as problem:
        _complain(_usage(problem))
        sys.exit(EXIT_BAD_INPUT)
    except InvalidInput as problem:  # Of an option's own check, before the command runs.
        _complain(f"--{problem.option.replace('_', '-')} {problem.problem}")
        sys.exit(EXIT_BAD_INPUT)
    # Later versions of typer return this code on Ctrl-C, where earlier ones raise Abort.
    if code == EXIT_INTERRUPTED:
        _complain("interrupted, and nothing was kept: the same command starts again")
    sys.exit(code)


def _commands(app: typer.Typer) -> Iterator[Any]:
    """Yield all commands of a program, those of its groups too."""
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance)


def _complain(sentence: str) -> None:
    sentence = " ".join(sentence.split())
    end = "" if sentence.endswith((".", "?")) else "."
    sys.stderr.write(f"sparsesecagg: {sentence}{end}\n")


def _explain(problem: Exception, context: Any) -> tuple[str, int] | None:  # noqa: PLR0911 (a table)
    """Return sentence and exit code; None for a bug, which has to be seen as it is."""
    match problem:
        case InvalidInput():
            return f"{_name_of(problem.option, context)} {problem.problem}", EXIT_BAD_INPUT
        case MissingExtra() | NeedsSourceTree():
            return str(problem), EXIT_BAD_INPUT
        case ProtocolError():
            return f"the round failed: {problem}{_remedy(problem, context)}", EXIT_FAILED
        case Failed():
            return str(problem), EXIT_FAILED
        case Interrupted():
            return f"interrupted: {problem}", EXIT_INTERRUPTED
        case MemoryError():
            given = [f"--{name}" for name in _SIZES if _is_given(name, context)] or ["--clients"]
            return f"{' or '.join(given)} must be lower, there is not enough memory: {problem}", EXIT_BAD_INPUT
        case OSError(filename=str(path), strerror=str(reason)):
            option = _option_with(Path(path), context)
            if option is not None:
                return f"{option} must name a place that can be used, got {path}: {reason}", EXIT_BAD_INPUT
            if problem.errno in _REFUSED_BY_THE_SYSTEM:
                return f"{path} can't be used: {reason}", EXIT_FAILED
    return (_usage(problem), EXIT_BAD_INPUT) if isinstance(problem, _UsageError) else None


def _usage(problem: Any) -> str:
    """Return the sentence for a command line that can't be read."""
    message = str(problem.format_message())
    if hasattr(problem, "possibilities") and hasattr(problem, "option_name"):
        near = sorted(problem.possibilities or ())
        hint = f"did you mean {' or '.join(near)}?" if near else "--help lists them"
        return f"{problem.option_name} is not an option: {hint}"
    parameter = getattr(problem, "param", None)
    if parameter is None:
        return re.sub(r"^Option '(.*?)'", r"\1", message)
    if hasattr(problem, "param_type"):
        return f"{_typed(parameter)} is required"
    # All versions of typer say so, in words of their own: "'x' is not a valid int", "should be a valid integer".
    if wanted := re.search(r"(?:('.*') is not a )?\bvalid (int|float|number)", str(problem.message)):
        kind, got = "a whole number" if wanted[2] == "int" else "a number", f", got {wanted[1]}" if wanted[1] else ""
        return f"{_typed(parameter)} must be {kind}{got}"
    return f"{_typed(parameter)} can't be read: {problem.message}"


def _name_of(parameter: str, context: Any) -> str:
    """Return a parameter as it is typed: --group-size for an option, NAME for an argument."""
    flag = "--" + parameter.replace("_", "-")
    known = (each for each in context.command.params if each.name == parameter or flag in each.opts)
    return next(map(_typed, known), flag)


def _remedy(problem: ProtocolError, context: Any) -> str:
    """Return what to change about a failed round, as far as this command has an option for it."""
    known = {flag for each in context.command.params for flag in each.opts}
    for kind, remedies in _REMEDIES.items():
        if isinstance(problem, kind):
            changes = [remedy for remedy in remedies if remedy.split()[-1] in known]
            return f"; {' or '.join(changes)}" if changes else ""
    return ""


def _option_with(path: Path, context: Any) -> str | None:
    """Return the option or argument that names a path or a folder above it."""
    for each in context.command.params:
        value = context.params.get(each.name)
        for named in value if isinstance(value, list | tuple) else [value]:
            if named and isinstance(named, str | Path) and (Path(named) == path or Path(named) in path.parents):
                return _typed(each)
    return None


def _is_given(name: str, context: Any) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _typed(parameter: Any) -> str:
    """Return a parameter as its help shows it: RUN for an argument, --out for an option."""
    if parameter.param_type_name != "argument":
        return str(next((flag for flag in parameter.opts if flag.startswith("--")), parameter.opts[0]))
    return str(parameter.metavar or parameter.name.upper()).strip("[]….")
