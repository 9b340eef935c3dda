"""Calls in several threads that mostly encrypt and add, which needs no interpreter.

What is left needs the interpreter's lock, and whoever waits for it gets it after a *switch interval*, 5 ms by default:
as long as a thread takes to agree on all keys of a committee, during which the others would stand still.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

_INTERVAL = 1e-4
"""Seconds: about as long as a chunk of a mask takes."""


def call_all(calls: Iterable[Callable[[], None]], threads: int) -> None:
    """Make independent calls in as many threads; with one, simply one after the other."""
    if threads == 1:
        for call in calls:
            call()
        return
    with _SHORT.turns(), ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


class _ShortTurns:
    """The interpreter's switch interval belongs to the process: the last of several servers gives it back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._before = 0.0

    @contextmanager
    def turns(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(_INTERVAL, self._before))
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    sys.setswitchinterval(self._before)


_SHORT = _ShortTurns()
