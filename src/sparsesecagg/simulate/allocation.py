"""Reuse of freed memory.

A round works through many arrays of a megabyte or so. The C library takes each of them from the system and gives it
back, until it has seen a larger one being freed; then it keeps such memory for the next. In a process that trains a
model that has long happened. In a fresh one every array consists of pages that the system has to clear first, which
costs `pairwise` a quarter of its UPLOAD and a third of its server's time.
"""

from __future__ import annotations

from functools import cache

import numpy as np

KEPT = 1 << 24
"""Bytes of the largest array that comes from kept memory. With glibc at most twice as much lies idle; others differ."""


@cache
def keep_freed_memory() -> None:
    """Free one large array, once per process. It is never written to, so that it takes no memory at all."""
    np.empty(KEPT, np.uint8)
