"""Running things in copies of this process: what they change, they change for themselves."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

MEMORY = 8 << 30


def in_forks(acts: list[Callable[[], Any]]) -> list[Any]:
    """Return what each act returns in a copy of this process, all at the same time; `EOFError` if one dies."""
    running: list[tuple[int, Any]] = []
    for act in acts:
        result = tempfile.TemporaryFile()  # noqa: SIM115  # Open until the fork is done.
        child = os.fork()
        if not child:
            try:
                pickle.dump(act(), result)
                result.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        running.append((child, result))
    answers = []
    for child, result in running:
        os.waitpid(child, 0)
        with result:
            result.seek(0)
            answers.append(pickle.load(result))  # noqa: S301  # Written by ourselves, above.
    return answers


def within_limits(act: Callable[[], str], cpu_seconds: int) -> str:
    """Return what `act` returns in a silent fork that may use some time and memory, or "timeout"."""

    def limited() -> str:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30 * cpu_seconds)  # If it sleeps.
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        return act()

    try:
        return str(*in_forks([limited]))
    except EOFError:
        return "timeout"
