"""The stages of the protocol; one word each, the same word everywhere.

ADVERTISE_KEYS happens once per epoch, and with a roster DRAW after it, for the jury. SHARE_KEYS is a package that
travels ahead of its round. A round itself is UPLOAD and UNMASK, with CONFIRM between them where the parameters ask for
it.
"""

from __future__ import annotations

from enum import Enum


class Stage(Enum):
    """Where a run is."""

    ADVERTISE_KEYS = "ADVERTISE_KEYS"
    DRAW = "DRAW"
    SHARE_KEYS = "SHARE_KEYS"
    UPLOAD = "UPLOAD"
    CONFIRM = "CONFIRM"
    UNMASK = "UNMASK"
    DONE = "DONE"


STAGES = (Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK)
"""In the order in which a user meets them."""

ROUND_STAGES = (Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK)
"""What a client answers in a round, in this order, each once."""


def round_stages(confirm: bool) -> tuple[Stage, ...]:
    """Return the exchanges of a round."""
    return ROUND_STAGES if confirm else (Stage.UPLOAD, Stage.UNMASK)


def next_stage(stage: Stage, confirm: bool) -> Stage:
    """Return what follows a stage of a round."""
    stages = (*round_stages(confirm), Stage.DONE)
    return stages[stages.index(stage) + 1]
