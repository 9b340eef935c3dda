"""The stages of the protocol; one word each, the same word everywhere.

ADVERTISE_KEYS happens once per epoch. SHARE_KEYS is a key package that travels ahead of its round. A round itself is
two exchanges, UPLOAD and UNMASK.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class Stage(Enum):
    """Where a run is."""

    ADVERTISE_KEYS = "ADVERTISE_KEYS"
    SHARE_KEYS = "SHARE_KEYS"
    UPLOAD = "UPLOAD"
    UNMASK = "UNMASK"
    DONE = "DONE"


STAGES = (Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK)
"""In the order in which a user meets them."""

ROUND_STAGES = (Stage.UPLOAD, Stage.UNMASK)
"""The exchanges of a round."""

NEXT_STAGE = {Stage.ADVERTISE_KEYS: Stage.DONE, Stage.UPLOAD: Stage.UNMASK, Stage.UNMASK: Stage.DONE}
"""What follows at the server when a stage is closed; a round begins from DONE with UPLOAD."""


class Progress(IntEnum):
    """How far a client is in a round; it only goes up, each step is on record before anything leaves."""

    NOTHING = 0
    HEADER = 1
    """Has accepted a header: no other one for this round."""
    UPLOAD = 2
    UNMASK = 3
    """Over, whether shares were released or refused."""


ANSWERS = {Stage.UPLOAD: Progress.UPLOAD, Stage.UNMASK: Progress.UNMASK}
"""How far a client is when it has answered a stage."""
