"""What a server remembers between rounds, as bytes.

Nothing in it is a secret of a user: keys of pods, sealed packages, declared survivors. The seed of the draw is public
once the groups are drawn.
"""

from __future__ import annotations

import msgspec

from sparsesecagg.errors import MalformedMessage


class PodState(msgspec.Struct, frozen=True, array_like=True):
    """A pod between rounds."""

    keys: bytes
    """The epoch's keys, as its members got them; empty for a pod too few of whose members advertised keys."""
    packages: list[bytes] = []
    """Those of rounds to come."""
    history: list[tuple[int, bytes]] = []
    last_upload: dict[int, int] = {}


class ServerState(msgspec.Struct, frozen=True, array_like=True):
    """A run between rounds."""

    params: bytes
    seed: bytes
    epoch_number: int
    round_number: int
    pods: list[PodState]
    draw: bytes
    """What shows how the groups were drawn."""
    last_draw: int
    silent: list[int]
    """Jurors that are named no more."""


def restore_server_state(data: bytes) -> ServerState:
    """Return the state that was encoded."""
    try:
        return msgspec.msgpack.decode(data, type=ServerState)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise MalformedMessage("the bytes are not a saved server") from None
