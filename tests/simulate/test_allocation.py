"""Freed memory is used again: arrays that come and go cost no pages of the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource
import numpy as np
from sparsesecagg.simulate.allocation import keep_freed_memory
{prepare}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(1 << 20, np.uint8)
before = faults()
for _ in range(100):
    parts = [np.ones(1 << 20, np.uint8) for _ in range(4)]
    del parts
print(faults() - before)
"""


def faults(prepare: str) -> int:
    """Return how many pages a fresh process asks for while it makes four megabytes of arrays a hundred times."""
    program = [sys.executable, "-c", COUNT_FAULTS.format(prepare=prepare)]
    return int(subprocess.run(program, capture_output=True, check=True, text=True).stdout)  # noqa: S603


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other rules")
def test_a_process_keeps_what_it_frees() -> None:
    pages = 100 * 4 * (1 << 20) // 4096
    assert faults("") > pages // 2
    assert faults("keep_freed_memory()") < pages // 50
