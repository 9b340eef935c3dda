"""Where a run is, and what may follow: one table for the server and one for the client.

ADVERTISE_KEYS happens once per epoch. SHARE_KEYS is between rounds: key packages travel ahead of their round, and are
taken at any time. A round itself is two exchanges, UPLOAD and UNMASK. The diagrams of docs/transport.md are drawn from
these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import TypeVar

from sparsesecagg.errors import WrongStage


class Stage(Enum):
    """What the server waits for; one word each, the same word everywhere."""

    ADVERTISE_KEYS = "ADVERTISE_KEYS"
    SHARE_KEYS = "SHARE_KEYS"
    UPLOAD = "UPLOAD"
    UNMASK = "UNMASK"


STAGES = tuple(Stage)
"""In the order in which a user meets them."""

ROUND_STAGES = (Stage.UPLOAD, Stage.UNMASK)
"""The exchanges of a round."""


class Progress(IntEnum):
    """Where a client is. Within a round it only goes up, and each step is on record before anything leaves."""

    NEW = 0
    ADVERTISED = 1
    """Its sealing key has left; the keys of its group are still to come."""
    ACCEPTED = 2
    """Has accepted a header: no other one for this round."""
    UPLOADED = 3
    OVER = 4
    """The round is over, whether shares were released or refused. So is, after `join`, the one before the first."""


Place = TypeVar("Place", Stage, Progress)

_ANY_TIME = {"begin_epoch": Stage.ADVERTISE_KEYS}

SERVER_TRANSITIONS: Mapping[Stage, Mapping[str, Stage]] = {
    Stage.ADVERTISE_KEYS: {"close_stage": Stage.SHARE_KEYS, **_ANY_TIME},
    Stage.SHARE_KEYS: {"begin_round": Stage.UPLOAD, **_ANY_TIME},
    Stage.UPLOAD: {"close_stage": Stage.UNMASK, "too few are left": Stage.SHARE_KEYS, **_ANY_TIME},
    Stage.UNMASK: {"close_stage": Stage.SHARE_KEYS, "too few are left": Stage.SHARE_KEYS, **_ANY_TIME},
}

CLIENT_TRANSITIONS: Mapping[Progress, Mapping[str, Progress]] = {
    Progress.NEW: {"advertise_keys": Progress.ADVERTISED},
    Progress.ADVERTISED: {"join": Progress.OVER, "advertise_keys": Progress.ADVERTISED},
    Progress.OVER: {"accept": Progress.ACCEPTED, "share_keys": Progress.OVER, "advertise_keys": Progress.ADVERTISED},
    Progress.ACCEPTED: {
        "upload": Progress.UPLOADED,
        "accept": Progress.ACCEPTED,
        "share_keys": Progress.ACCEPTED,
        "advertise_keys": Progress.ADVERTISED,
    },
    Progress.UPLOADED: {
        "unmask": Progress.OVER,
        "accept": Progress.ACCEPTED,
        "share_keys": Progress.UPLOADED,
        "advertise_keys": Progress.ADVERTISED,
    },
}
"""`accept` takes the header of a later round only, `advertise_keys` that of a later epoch or the same bytes again."""


def after(table: Mapping[Place, Mapping[str, Place]], place: Place, call: str) -> Place:
    """Return where a call leads; raise `WrongStage` if it does not belong here."""
    if call not in table[place]:
        raise WrongStage(call, place.name)
    return table[place][call]
