"""A roster with its jurors, for tests of draws: honest jurors keep the rules, colluders sign what they are shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache
from itertools import pairwise

import msgspec
import numpy as np

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy
from sparsesecagg.errors import ProtocolError
from sparsesecagg.protocol.draw import Statement, jury, named_needed, signed_reveal
from sparsesecagg.protocol.draw_messages import DrawProof, DrawRequest, DrawReveal, decode_draw, encode_draw
from sparsesecagg.protocol.draw_server import DrawServer
from sparsesecagg.protocol.juror import JurorState, answer_draw
from sparsesecagg.protocol.messages import encode_users, user_number
from sparsesecagg.protocol.parameters import Parameters

CLIENTS = 60
COLLUDERS = 5
EVERYBODY = range(CLIENTS)


@cache
def people(run: str = "draws") -> tuple[Identity, ...]:
    """The users of a roster; making one takes time, so all tests share it."""
    return tuple(make_identities(CLIENTS, run, seeded_entropy(6)))


ROSTER = people()[0].roster


def planned_for(colluders: int, roster: Roster = ROSTER) -> Parameters:
    """Parameters of a run, as they are: a number of colluders that makes no sense is not checked."""
    params = Parameters.create(clients=CLIENTS, dim=30, pattern="full", colluders=0, roster_digest=roster.digest)
    return msgspec.structs.replace(params, colluders=colluders)


PARAMS = planned_for(COLLUDERS)
SIZE = len(jury(ROSTER.digest, 1, CLIENTS, COLLUDERS))
NEEDED = named_needed(SIZE)


def jurors(draw: int) -> tuple[int, ...]:
    """The jury of a draw, in its order."""
    return jury(ROSTER.digest, draw, CLIENTS, COLLUDERS)


def users(chosen: Iterable[int]) -> bytes:
    """A set of users as it travels."""
    return encode_users(np.array(sorted(chosen), np.int64), CLIENTS)


def ask_for(draw: int, named: Iterable[int] | None = None, population: Iterable[int] = EVERYBODY) -> DrawRequest:
    """A request; the first three quarters of the jury are named unless told otherwise."""
    return DrawRequest(draw, ROSTER.digest, users(population), users(jurors(draw)[:NEEDED] if named is None else named))


class Hall:
    """All users of the roster as jurors, each with its own memory."""

    def __init__(self, colluding: Collection[int] = (), silent: Collection[int] = ()) -> None:
        self.colluding = set(colluding)
        self.silent = set(silent)
        self.states = {user: JurorState() for user in EVERYBODY}
        self.asked: list[tuple[int, int]] = []

    def ask(self, user: int, request: DrawRequest) -> bytes | None:
        """What a user answers."""
        self.asked.append((request.draw, user))
        if user in self.silent:
            return None
        if user in self.colluding:
            return sign_anything(user, request)
        self.states[user], answer = answer_draw(people()[user], PARAMS, self.states[user], request)
        return answer


def sign_anything(user: int, request: DrawRequest) -> bytes:
    """What a colluder answers: no rule holds it back. Its nonces are committed to all the same."""
    statement = Statement.of(request, ROSTER, PARAMS)
    nonce = people()[user].reveal(request.draw)
    reveal = people()[user].sign(signed_reveal(statement, nonce)) + nonce
    return encode_draw(DrawReveal(request.draw, user_number(user), reveal))


def reveal_of(answer: bytes | None) -> bytes:
    """Signature and nonce of an answer."""
    assert answer is not None
    message = decode_draw(answer)
    assert isinstance(message, DrawReveal)
    return message.reveal


def prove(request: DrawRequest, reveals: Iterable[bytes]) -> DrawProof:
    """The proof that a server would make of these reveals, right or wrong."""
    return DrawProof(request.draw, request.population, request.named, b"".join(reveals))


def honest_proof(draw: int = 1, population: Iterable[int] = EVERYBODY) -> DrawProof:
    """A proof of a draw in which everybody keeps the rules."""
    request, hall = ask_for(draw, population=population), Hall()
    return prove(request, [reveal_of(hall.ask(user, request)) for user in sorted(jurors(draw)[:NEEDED])])


def hold_draw(
    server: DrawServer, present: Collection[int], ask: Callable[[int, DrawRequest], bytes | None]
) -> DrawProof:
    """Hold draws until one succeeds, asking each juror once."""
    while True:
        request = server.name(present)
        for user in server.missing:
            answer = ask(user, request)
            with suppress(ProtocolError):  # As good as silence.
                if answer is not None:
                    server.receive(answer)
        if not server.missing:
            return server.proof()
        server.give_up()


def is_increasing(numbers: Iterable[int]) -> bool:
    """Return whether each number is larger than the one before."""
    return all(first < second for first, second in pairwise(numbers))
