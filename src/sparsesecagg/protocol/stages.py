"""The stages of a round; one word each, the same word everywhere."""

from __future__ import annotations

from enum import Enum


class Stage(Enum):
    """Where a round is."""

    ADVERTISE_KEYS = "ADVERTISE_KEYS"
    SHARE_KEYS = "SHARE_KEYS"
    UPLOAD = "UPLOAD"
    UNMASK = "UNMASK"
    DONE = "DONE"


NEXT_STAGE = {
    Stage.ADVERTISE_KEYS: Stage.SHARE_KEYS,
    Stage.SHARE_KEYS: Stage.UPLOAD,
    Stage.UPLOAD: Stage.UNMASK,
    Stage.UNMASK: Stage.DONE,
}

STAGES = tuple(NEXT_STAGE)
"""The four stages in which messages travel."""
