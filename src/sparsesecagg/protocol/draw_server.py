"""The server's side of a draw: names jurors, collects what they reveal, moves on without those that stay silent.

Clients do not trust any of this; they check the proof (`draw`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sparsesecagg.crypto.chain import MAX_DRAWS
from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import DrawsExhausted, InvalidInput, TooFewJurors, UnknownSender, WrongSender, WrongStage
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.protocol.draw import Statement, is_large_enough, jury, named_needed, require_reveal
from sparsesecagg.protocol.draw_messages import DrawProof, DrawRequest, DrawReveal, decode_draw
from sparsesecagg.protocol.messages import decode_users, encode_users
from sparsesecagg.protocol.parameters import Parameters


class DrawServer:
    """Holds draws of one run until one succeeds.

    `last_draw` (the last number that any juror was asked for) and `silent` (who is named no more) must outlive a
    restart: they are what the next epoch's `DrawServer` begins with.
    """

    def __init__(
        self,
        roster: Roster,
        params: Parameters,
        *,
        population: Users | None = None,
        last_draw: int = 0,
        silent: Collection[int] = (),
    ) -> None:
        self.roster = roster
        self.params = params
        self.last_draw = last_draw
        self.silent = set(silent)
        self._clients = len(roster.entries)
        users = np.arange(self._clients) if population is None else population
        if not is_large_enough(len(users), self._clients):
            raise InvalidInput("population", f"must be at least 4/5 of the {self._clients} users, got {len(users)}")
        self._population = encode_users(users, self._clients)
        self._request: DrawRequest | None = None
        self._reveals: dict[int, bytes] = {}

    def name(self, present: Collection[int]) -> DrawRequest:
        """Begin the next draw: return the request for the named jurors, the first ones of the jury that are present.

        As few are named as the rules allow, since each of them must answer. Numbers are passed over whose jury has too
        many silent users. Raises `TooFewJurors`, and changes nothing, if too few are present: wait, or `skip`.
        """
        if self._request is not None:
            raise WrongStage("a call to name jurors", f"draw {self._request.draw}")
        while True:
            draw = self.last_draw + 1
            if draw > MAX_DRAWS:
                raise DrawsExhausted(MAX_DRAWS)
            jurors = jury(self.roster.digest, draw, self._clients, self.params.colluders)
            needed = named_needed(len(jurors))
            willing = [user for user in jurors if user not in self.silent]
            if len(willing) >= needed:
                break
            self.last_draw = draw
        named = [user for user in willing if user in present][:needed]
        if len(named) < needed:
            raise TooFewJurors(draw, len(named), needed)
        request = DrawRequest(draw, self.roster.digest, self._population, encode_users(np.array(named), self._clients))
        self._request, self._reveals, self.last_draw = request, {}, draw
        return request

    def skip(self) -> None:
        """Pass over the next number, whose jurors are away for good."""
        if self._request is not None:
            raise WrongStage("a call to skip a draw", f"draw {self._request.draw}")
        self.last_draw += 1

    @property
    def missing(self) -> list[int]:
        """The named jurors that have not answered yet, sorted."""
        return [user for user in self._named if user not in self._reveals]

    def receive(self, data: bytes, sender: int | None = None) -> int:
        """Take a juror's answer and return who sent it; one that raises does not count."""
        message = decode_draw(data)
        request = self._current()
        if not isinstance(message, DrawReveal) or message.draw != request.draw:
            raise WrongStage(f"a message of draw {message.draw}", f"the reveals of draw {request.draw}")
        if sender not in (None, message.sender):
            raise WrongSender(message.sender, sender)
        if message.sender not in self._named:
            raise UnknownSender(message.sender)
        statement = Statement.of(request, self.roster, self.params)
        require_reveal(self.roster, statement, message.sender, message.reveal)
        self._reveals[message.sender] = message.reveal
        return message.sender

    def proof(self) -> DrawProof:
        """Return the proof for everybody and end the draw; every named juror must have answered."""
        request = self._current()
        if self.missing:
            raise TooFewJurors(request.draw, len(self._reveals), len(self._named))
        reveals = b"".join(self._reveals[user] for user in self._named)
        self._request = None
        return DrawProof(request.draw, request.population, request.named, reveals)

    def give_up(self) -> list[int]:
        """End a draw whose jurors did not all answer; return those that did not, who are named no more."""
        self._current()
        silent = self.missing
        self.silent.update(silent)
        self._request = None
        return silent

    @property
    def _named(self) -> list[int]:
        named: list[int] = decode_users(self._current().named, self._clients).tolist()
        return named

    def _current(self) -> DrawRequest:
        if self._request is None:
            raise WrongStage("a message or call of a draw", "no draw")
        return self._request
