"""Peak memory: this process's own, since it was last forgotten."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from sparsesecagg.simulate import peak_memory as memory


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
