"""Memory of this process: freed arrays are used again, and the peak can be told.

A round works through many arrays of a megabyte or so. The C library takes each of them from the system and gives it
back, until it has seen a larger one being freed; then it keeps such memory for the next. In a fresh process every array
consists of pages that the system has to clear first: a quarter of `pairwise`'s UPLOAD, a third of its server's time.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

KEPT = 1 << 24
"""Bytes of the largest array that comes from kept memory. With glibc at most twice as much lies idle; others differ."""
_STATUS, _CLEAR_REFS, _FORGET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs"), "5"


@cache
def keep_freed_memory() -> None:
    """Free one large array, once per process. It is never written to, so that it takes no memory at all."""
    np.empty(KEPT, np.uint8)


def forget_peak() -> None:
    """Let the peak start at what is in use now; where the system can't (it takes Linux), it stays the peak so far."""
    with suppress(OSError):
        _CLEAR_REFS.write_text(_FORGET_PEAK)


def peak() -> int:
    """Return the peak resident memory in bytes; 0 on Windows, which does not tell.

    Linux counts what the parent held at the fork into `ru_maxrss`, so there the memory map's own mark is read.
    """
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
