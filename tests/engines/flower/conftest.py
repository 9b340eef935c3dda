"""What all tests of the Flower engine need."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


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
