"""From what shows that a draw was fair to the groups that it draws, with a roster and without.

With a roster a jury draws (`protocol/draw.py`). In a plain run the server's seed, to which the parameters commit it,
and a nonce of every user do: the server can't choose the groups unless it makes up users, which a plain run can't
prevent anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.crypto.kdf import DIGEST_SIZE, digest
from sparsesecagg.errors import InvalidDraw, InvalidKey, MalformedMessage
from sparsesecagg.patterns import Groups
from sparsesecagg.patterns.anonymity import Structure
from sparsesecagg.protocol.draw import verify_draw
from sparsesecagg.protocol.draw_messages import DrawProof, decode_draw
from sparsesecagg.protocol.messages import NONCE_SIZE, decode_users, encode_users, pieces
from sparsesecagg.protocol.parameters import Parameters


class GroupDraw(NamedTuple):
    """A draw that was checked."""

    number: int
    seed: bytes
    groups: Groups
    structure: Structure
    """The sizes of the groups, smaller in number than planned if users are excluded."""


def session_of(seed: bytes) -> bytes:
    """Return the session of a run: it tells runs apart, and commits the server to its 32-byte seed of the draw."""
    return digest("server seed", seed)


def checked_groups(
    params: Parameters, draw: bytes, user: int, nonce: bytes | None, identity: Identity | None, last_draw: int
) -> GroupDraw:
    """Return the groups that a draw gives; raise unless it is what this user can check it to be.

    `nonce` is the user's own, None where it was checked before; `last_draw` the number of the last draw it accepted.
    """
    if identity is None:
        return _plain_groups(params, draw, user, nonce, last_draw)
    return drawn_groups(params, identity.roster, draw, last_draw)


@lru_cache(maxsize=4)  # All simulated users of a process check the same draw.
def drawn_groups(params: Parameters, roster: Roster, draw: bytes, last_draw: int) -> GroupDraw:
    """Return the groups that a jury has drawn."""
    proof = decode_draw(draw)
    if not isinstance(proof, DrawProof):
        raise MalformedMessage("the draw is not a jury's")
    drawn = verify_draw(roster, params, proof, last_draw)
    excluded = frozenset(range(params.clients)).difference(drawn.population.tolist())
    structure = params.structure.among(params.clients - len(excluded)) if excluded else params.structure
    # Without the excluded there may be fewer and larger committees, whose sums the words need not hold.
    largest = max(map(max, structure.sizes))
    if largest > params.contributors:
        raise InvalidDraw(
            drawn.number, f"committees of {largest} are drawn, and words hold the sum of {params.contributors}"
        )
    return GroupDraw(drawn.number, drawn.seed, params.groups(drawn.seed, structure, excluded), structure)


def plain_draw(params: Parameters, seed: bytes, nonces: Mapping[int, bytes]) -> tuple[bytes, GroupDraw]:
    """Draw the groups of a plain run; return what shows users that it was fair, and the groups. Users are sorted."""
    users = np.array(list(nonces), np.int64)
    draw = seed + encode_users(users, params.clients) + b"".join(nonces.values())
    return draw, _plain_groups(params, draw, 0, None, 0)


def _plain_groups(params: Parameters, draw: bytes, user: int, nonce: bytes | None, last_draw: int) -> GroupDraw:
    """Read the server's seed, who sent a nonce, and the nonces."""
    bitmap = (params.clients + 7) // 8
    if len(draw) < DIGEST_SIZE + bitmap:
        raise MalformedMessage("the draw is too short")
    seed, rest = draw[:DIGEST_SIZE], draw[DIGEST_SIZE:]
    users = decode_users(rest[:bitmap], params.clients).tolist()
    nonces = dict(zip(users, pieces(rest[bitmap:], len(users), NONCE_SIZE, "the nonces"), strict=True))
    if session_of(seed) != params.session:
        raise InvalidKey("the server's seed of the draw is not the one it committed to")
    if nonce is not None and nonces.get(user) != nonce:
        raise InvalidKey("the draw has another nonce for this user than it sent, or none")
    drawn = digest("plain draw", params.digest, draw)
    return GroupDraw(last_draw + 1, drawn, params.groups(drawn, params.structure), params.structure)
