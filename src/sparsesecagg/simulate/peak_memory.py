"""The peak memory of this process, from now on."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_FORGET_PEAK = "5"


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
