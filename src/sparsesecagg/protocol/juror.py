"""A juror: signs one statement per draw number and reveals its nonce for it, at most once, numbers only going up.

A pure function of the request and of what the juror has answered before. The caller stores the returned state before
the answer leaves. That state belongs to the *chain of nonces*, whatever roster lists it: two rosters may be made of the
same entries, and a nonce that was revealed under one is known under the other. A juror whose stored state is rolled
back or copied can be made to sign twice; that can't be detected, and such a user counts as a colluder.
"""

from __future__ import annotations

import msgspec

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.errors import InvalidDraw
from sparsesecagg.protocol.draw import Statement, require_fair, signed_reveal
from sparsesecagg.protocol.draw_messages import DrawRequest, DrawReveal, encode_draw
from sparsesecagg.protocol.messages import user_number
from sparsesecagg.protocol.parameters import Parameters


class JurorState(msgspec.Struct, frozen=True):
    """What a juror must never forget; one per chain of nonces. Holds no secret that has not been sent."""

    last_draw: int = 0
    """The highest draw number that was answered."""
    statement: bytes = b""
    """The digest of the statement that was signed then."""
    answer: bytes = b""
    """The answer, to be sent again as it was."""


def answer_draw(
    identity: Identity, params: Parameters, state: JurorState, request: DrawRequest
) -> tuple[JurorState, bytes]:
    """Return the new state and the bytes of the answer; raise `InvalidDraw` to refuse, with the state unchanged.

    `params` are the juror's own: what it signs is for this run as it knows it.
    """
    roster, draw = identity.roster, request.draw
    if request.roster_digest != roster.digest:
        raise InvalidDraw(draw, "the server works with another roster")
    statement = Statement.of(request, roster, params)
    named, _ = require_fair(statement, len(roster.entries))
    if identity.user not in named:
        raise InvalidDraw(draw, f"user {identity.user} is asked and not named")
    if draw == state.last_draw and statement.digest == state.statement:
        return state, state.answer
    if draw <= state.last_draw:
        raise InvalidDraw(draw, f"user {identity.user} has answered draw {state.last_draw}, and signs each number once")
    nonce = identity.reveal(draw)
    reveal = identity.sign(signed_reveal(statement, nonce)) + nonce
    answer = encode_draw(DrawReveal(draw, user_number(identity.user), reveal))
    return JurorState(draw, statement.digest, answer), answer
