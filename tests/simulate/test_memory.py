"""Freed memory is used again, and the peak is this process's own, since it was last forgotten."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sparsesecagg.simulate import memory

COUNT_FAULTS = """
import resource
import numpy as np
from sparsesecagg.simulate.memory import keep_freed_memory
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


def test_the_peak_counts_what_has_been_freed() -> None:
    before = memory.peak()
    np.ones(before // 2 + (64 << 20), np.uint8)
    assert memory.peak() >= before
    assert memory.peak() > 64 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets")
def test_a_forgotten_peak_counts_no_more() -> None:
    np.ones(256 << 20, np.uint8)
    before = memory.peak()
    memory.forget_peak()
    assert memory.peak() < before - (200 << 20)


def test_a_system_that_tells_less_is_asked_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("_STATUS", "_CLEAR_REFS"):
        monkeypatch.setattr(memory, name, tmp_path / "folder" / "nothing")
    memory.forget_peak()
    assert memory.peak() > 10 << 20
