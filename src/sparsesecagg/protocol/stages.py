"""The stages of a round; one word each, the same word everywhere.

CONFIRM takes place only in rounds with a roster: users confirm to each other that all were told the same survivors.
"""

from __future__ import annotations

from enum import Enum


class Stage(Enum):
    """Where a round is."""

    ADVERTISE_KEYS = "ADVERTISE_KEYS"
    SHARE_KEYS = "SHARE_KEYS"
    UPLOAD = "UPLOAD"
    CONFIRM = "CONFIRM"
    UNMASK = "UNMASK"
    DONE = "DONE"


NEXT_STAGE = {
    Stage.ADVERTISE_KEYS: Stage.SHARE_KEYS,
    Stage.SHARE_KEYS: Stage.UPLOAD,
    Stage.UPLOAD: Stage.UNMASK,
    Stage.UNMASK: Stage.DONE,
}
NEXT_STAGE_WITH_ROSTER = {**NEXT_STAGE, Stage.UPLOAD: Stage.CONFIRM, Stage.CONFIRM: Stage.UNMASK}

STAGES = (Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK)
"""The four stages of every round."""

STAGES_WITH_ROSTER = (Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK)
