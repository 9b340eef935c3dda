"""What all tests of the Flower engine need."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparsesecagg.flower.node import LEDGER_VARIABLE


@pytest.fixture(autouse=True)
def ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the nodes of each test a ledger of their own, in memory where there is such a folder; return its folder."""
    memory = Path("/dev/shm")  # noqa: S108  # A ledger waits for the disk, and these tests write thousands of entries.
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        monkeypatch.setenv(LEDGER_VARIABLE, folder)
        yield Path(folder)


@pytest.fixture(autouse=True)
def audible_flower() -> Iterator[None]:
    """Let Flower's logger be heard: its own start-up code may have silenced it earlier in this process."""
    logger = logging.getLogger("flwr")
    before = logger.disabled, logger.propagate, logger.level
    logger.disabled, logger.propagate = False, True
    logger.setLevel(logging.DEBUG)
    yield
    logger.disabled, logger.propagate = before[:2]
    logger.setLevel(before[2])
