"""From an error to one sentence on standard error and an exit code.

Commands raise; `run` ends the program: 2 for bad input, with the option's name and what is allowed; 1 for a failed
round, with the stage and the reason; 130 after Ctrl-C. Everything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import typer
from typer.main import get_command

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


_REMEDIES: Final[dict[type[ProtocolError], tuple[tuple[str, str], ...]]] = {
    ThresholdNotMet: (("lower", "--dropout"), ("lower", "--threshold")),
    TooLittleOpened: (("lower", "--dropout"), ("raise", "--committee-size"), ("lower", "--min-survivors")),
    PolicyViolation: (("raise", "--clients"), ("raise", "--alpha")),
}
"""What would keep a round from failing in this way."""


class Interrupted(Exception):
    """Ctrl-C in a command that can be resumed; the text says how."""


class Failed(Exception):
    """A command that could not do what it was asked for, through no fault of its options; the text says why."""


class NeedsSourceTree(Exception):
    """A command whose files are not part of the installed package; the text says where they are."""


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a program and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=words, standalone_mode=False) or 0
    except (typer.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except Exception as problem:
        explained = _explain(problem, _CommandLine(app, words))
        if explained is None:
            raise
        sentence, code = explained
        _complain(sentence)
        sys.exit(code)
    # Later versions of typer return this code on Ctrl-C, where earlier ones raise Abort.
    if code == EXIT_INTERRUPTED:
        _complain("interrupted, and nothing was kept: the same command starts again")
    sys.exit(code)


def _complain(sentence: str) -> None:
    sentence = " ".join(sentence.split())
    end = "" if sentence.endswith((".", "?")) else "."
    sys.stderr.write(f"sparsesecagg: {sentence}{end}\n")


def _explain(problem: Exception, line: _CommandLine) -> tuple[str, int] | None:  # noqa: PLR0911 (a table)
    """Return sentence and exit code; None for a bug, which has to be seen as it is."""
    match problem:
        case InvalidInput():
            return f"{line.name_of(problem.option)} {problem.problem}", EXIT_BAD_INPUT
        case MissingExtra() | NeedsSourceTree():
            return str(problem), EXIT_BAD_INPUT
        case ProtocolError():
            return f"the round failed: {problem}{line.remedy(problem)}", EXIT_FAILED
        case Failed():
            return str(problem), EXIT_FAILED
        case Interrupted():
            return f"interrupted: {problem}", EXIT_INTERRUPTED
        case MemoryError():
            return line.out_of_memory(problem), EXIT_BAD_INPUT
        case OSError(filename=str(path), strerror=str(reason)):
            option = line.option_with(Path(path))
            if option is not None:
                return f"{option} must name a place that can be used, got {path}: {reason}", EXIT_BAD_INPUT
            if problem.errno in _REFUSED_BY_THE_SYSTEM:
                return f"{path} can't be used: {reason}", EXIT_FAILED
    return (line.usage(problem), EXIT_BAD_INPUT) if isinstance(problem, _UsageError) else None


class _CommandLine:
    """What was typed, and the parameters of the command that it names."""

    def __init__(self, app: typer.Typer, words: Sequence[str]) -> None:
        command: Any = get_command(app)
        rest = list(words)
        while rest and rest[0] in getattr(command, "commands", {}):
            command = command.commands[rest.pop(0)]
        self._words = rest
        self._parameters: list[Any] = command.params

    def name_of(self, parameter: str) -> str:
        """Return a parameter as it is typed: --min-survivors for an option, NAME for an argument."""
        flag = "--" + parameter.replace("_", "-")
        for known in self._parameters:
            if known.name == parameter or flag in known.opts:
                return _typed(known)
        return flag

    def usage(self, problem: Any) -> str:
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
        # All versions of typer say so, in words of their own: "not a valid int", "should be a valid integer".
        if wanted := re.search(r"\bvalid (int|float|number)", message):
            kind = "a whole number" if wanted[1] == "int" else "a number"
            return f"{_typed(parameter)} must be {kind}, got {self._value(parameter)!r}"
        return f"{_typed(parameter)} can't be read: {problem.message}"

    def remedy(self, problem: ProtocolError) -> str:
        """Return what to change about a failed round, as far as this command has an option for it."""
        for kind, words in _REMEDIES.items():
            if isinstance(problem, kind):
                known = {flag for parameter in self._parameters for flag in parameter.opts}
                changes = [f"{what} {flag}" for what, flag in words if flag in known]
                return f"; {' or '.join(changes)}" if changes else ""
        return ""

    def out_of_memory(self, problem: MemoryError) -> str:
        """Return the sentence that names the options to lower."""
        given = {flag for flag, _ in self._pairs()}
        sizes = [f"--{name}" for name in _SIZES if f"--{name}" in given] or ["--clients"]
        return f"{' or '.join(sizes)} must be lower, there is not enough memory: {problem}"

    def option_with(self, path: Path) -> str | None:
        """Return the option or argument that names a path or a folder above it."""
        for flag, value in self._pairs():
            if value and (Path(value) == path or Path(value) in path.parents):
                return flag or value
        return None

    def _value(self, parameter: Any) -> str:
        return next((value for flag, value in reversed(self._pairs()) if flag in parameter.opts), "")

    def _pairs(self) -> list[tuple[str, str]]:
        """Return (flag, value) for options and ("", value) for words of their own."""
        pairs: list[tuple[str, str]] = []
        flags = {flag for known in self._parameters if getattr(known, "is_flag", False) for flag in known.opts}
        words = iter(self._words)
        for word in words:
            if not word.startswith("--"):
                pairs.append(("", word))
            elif "=" in word:
                flag, _, value = word.partition("=")
                pairs.append((flag, value))
            else:
                pairs.append((word, "" if word in flags else next(words, "")))
        return pairs


def _typed(parameter: Any) -> str:
    """Return a parameter as its help shows it: RUN for an argument, --out for an option."""
    if parameter.param_type_name != "argument":
        return str(next((flag for flag in parameter.opts if flag.startswith("--")), parameter.opts[0]))
    return str(parameter.metavar or parameter.name.upper()).strip("[]….")
