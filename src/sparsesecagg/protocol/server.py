"""The server's side of a run: a state machine without I/O.

`receive` takes one client message at a time, `close_stage` ends a stage and returns the next message for each client,
`begin_round` starts a round. A message that does not fit raises a typed error and changes nothing. What is here is the
run's own: which stage it is at, who may send in it, and what was sent. `server_epoch` draws the groups and finds the
pod of a message, `server_round` adds up what the pods have opened.
"""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.errors import (
    DuplicateMessage,
    InvalidInput,
    UnknownSender,
    WrongRound,
    WrongSender,
    WrongStage,
)
from sparsesecagg.patterns import Groups
from sparsesecagg.protocol.draws import session_of
from sparsesecagg.protocol.messages import (
    AdvertiseKeys,
    Confirm,
    Message,
    ShareKeys,
    Unmask,
    Upload,
    decode_client_message,
)
from sparsesecagg.protocol.order import NO_TERMS
from sparsesecagg.protocol.package import AHEAD
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.pod_round import PodRound
from sparsesecagg.protocol.result import Result
from sparsesecagg.protocol.server_epoch import ServerEpoch
from sparsesecagg.protocol.server_round import ServerRound, Sizes
from sparsesecagg.protocol.server_state import restore_server_state
from sparsesecagg.protocol.stages import Stage, next_stage, round_stages

_MESSAGE_OF: dict[Stage, type[Message]] = {
    Stage.ADVERTISE_KEYS: AdvertiseKeys,
    Stage.UPLOAD: Upload,
    Stage.CONFIRM: Confirm,
    Stage.UNMASK: Unmask,
}
Kept = TypeVar("Kept")


class Server:
    """A run. Feed it with `receive`, end each stage with `close_stage`, start rounds with `begin_round`, read `result`.

    In a plain run `seed` is the server's part of the draw, to which `params.session` commits it (`session_of`).
    Committees are opened in as many `threads`, by default one for each processor.
    """

    def __init__(
        self,
        params: Parameters,
        seed: bytes = bytes(32),
        roster: Roster | None = None,
        threads: int | None = None,
    ) -> None:
        params.check()
        if threads is not None and threads < 1:
            raise InvalidInput("threads", f"must be at least 1, got {threads}")
        self.threads = threads or os.cpu_count() or 1
        if not params.authenticated and params.session != session_of(seed):
            raise InvalidInput("session", "must commit to the server's seed: session_of(seed)")
        self.params = params
        if params.authenticated and (roster is None or roster.digest != params.roster_digest):
            raise InvalidInput("roster", "must be given in an authenticated run, the one that the parameters name")
        self.roster = roster
        self._epoch = ServerEpoch(params, seed, roster)
        self._stage = Stage.ADVERTISE_KEYS
        self._result: Result | None = None
        self.epoch_number = 1
        self.round_number = 0
        self._seed = seed
        self._present: set[int] = set(range(params.clients))
        """Who may send in this stage."""
        self._heard: set[int] = set()
        """Who has sent in this stage."""
        self._round: ServerRound | None = None
        self.dropped: dict[str, int] = {Stage.ADVERTISE_KEYS.name: 0}
        self._forget_sizes()

    def receive(self, data: bytes, sender: int | None = None) -> int:
        """Take one message; return its sender.

        `sender` is who the transport says it came from, if it knows. Raises a typed error, and changes nothing, for
        a message that is malformed, late, early, of another round, a second one, or from somebody unknown.
        """
        if self.stage is Stage.DRAW:
            user = _kept(self._epoch.jury).receive(data, sender)
            self._heard.add(user)
            self.sent_bytes[Stage.DRAW.name][user] = len(data)
            return user
        message = decode_client_message(data)
        if sender not in (None, message.sender):
            raise WrongSender(message.sender, sender)
        if message.sender >= self.params.clients:
            raise UnknownSender(message.sender)
        if isinstance(message, ShareKeys):
            self._epoch.take_package(message, self.round_number)
            sizes = self.sent_bytes[Stage.SHARE_KEYS.name]
            sizes[message.sender] = sizes.get(message.sender, 0) + len(data)
            return message.sender
        if not isinstance(message, _MESSAGE_OF.get(self.stage, ())):
            raise WrongStage(type(message).__name__, self.stage.name)
        expected = self.epoch_number if self.stage is Stage.ADVERTISE_KEYS else self.round_number
        if message.round_number != expected:
            raise WrongRound(message.round_number, expected)
        if message.sender not in self._present:
            raise UnknownSender(message.sender)
        if message.sender in self._heard:
            raise DuplicateMessage(message.sender, self.stage.name)
        if isinstance(message, AdvertiseKeys):
            self._epoch.take_keys(message)
        else:
            _kept(self._round).take(message)
        self._heard.add(message.sender)
        self.sent_bytes[self.stage.name][message.sender] = len(data)
        return message.sender

    @property
    def stage(self) -> Stage:
        """The stage whose messages `receive` takes; `Stage.DONE` between two rounds."""
        return self._stage

    @property
    def result(self) -> Result | None:
        """The outcome of the last round; None before the first, during a round, and after one that failed."""
        return self._result

    @property
    def groups(self) -> Groups:
        """The groups that are drawn in this epoch; none before."""
        return self._epoch.groups

    @property
    def pod_rounds(self) -> list[PodRound]:
        """The round of each pod; none before the first."""
        return self._round.pods if self._round else []

    @property
    def waiting_for(self) -> set[int]:
        """The users that may still send in this stage."""
        return self._present - self._heard

    def save(self) -> bytes:
        """Return the run as bytes, for a server that is to be started again; at any time once the groups are drawn.

        A round that is under way is over for the restored server, and the next one follows. So save before the orders
        of a round leave, since its number must not be used twice, and before the requests for UNMASK leave, since users
        refuse rounds after one that they helped to open and that is not declared.
        """
        if not self._epoch.pods:
            raise WrongStage("save", self.stage.name)
        return msgspec.msgpack.encode(self._epoch.save(self.epoch_number, self.round_number))

    @staticmethod
    def restore(data: bytes, roster: Roster | None = None, threads: int | None = None) -> Server:
        """Return the server that `save` wrote down; the roster of an authenticated run is given again."""
        state = restore_server_state(data)
        server = Server(Parameters.decode(state.params), state.seed, roster, threads)
        server._epoch = ServerEpoch.restore(state, server.params, roster)
        server.epoch_number, server.round_number = state.epoch_number, state.round_number
        server._stage = Stage.DONE
        server._forget_sizes()
        return server

    # The epoch

    def begin_epoch(self, epoch_number: int | None = None) -> None:
        """Ask for new keys, for groups that a jury draws anew: when those of the last epoch are no longer viable.

        Only with a roster: in a plain run the server's seed is known by then, so a new run takes its place. The number
        is the next one by default. Rounds and draws go on where they were.
        """
        number = self.epoch_number + 1 if epoch_number is None else epoch_number
        last = self._epoch.jury
        if last is None:
            raise InvalidInput("roster", "must be given: a plain run has one epoch, so start a new run")
        if number < self.epoch_number or (number == self.epoch_number and self._epoch.pods):
            raise WrongRound(number, self.epoch_number + 1)
        self._epoch = ServerEpoch(self.params, self._seed, last.roster, last.last_draw, last.silent)
        self._round = None
        self._stage, self.epoch_number = Stage.ADVERTISE_KEYS, number
        self._present, self._heard = set(range(self.params.clients)), set()
        self.dropped = {Stage.ADVERTISE_KEYS.name: 0}
        self._forget_sizes()

    def catch_up(self, round_number: int, draw: int = 0) -> None:
        """Pass over rounds and draws that users know of and this server does not, as after a restart."""
        if self.stage not in (Stage.ADVERTISE_KEYS, Stage.DONE):
            raise WrongStage("catch_up", self.stage.name)
        self.round_number = max(self.round_number, round_number)
        if self._epoch.jury is not None:
            self._epoch.jury.last_draw = max(self._epoch.jury.last_draw, draw)

    # Packages

    def lacking(self, user: int) -> list[int]:
        """Return the rounds ahead for which a user could have sent its package and has not."""
        try:
            pod, place = self._epoch.place_of(user)
        except UnknownSender:
            return []
        ahead = range(self.round_number + 1, self.round_number + 1 + AHEAD)
        return [number for number in ahead if place not in pod.packages.get(number, {})]

    def dealt(self, round_number: int) -> set[int]:
        """Return the users whose package for a round has arrived: only they can take part in it."""
        return {
            int(pod.epoch.pod.users[place])
            for pod in self._epoch.pods
            if pod is not None
            for place in pod.packages.get(round_number, {})
        }

    # A round

    def begin_round(
        self, round_number: int | None = None, *, terms: bytes = NO_TERMS, min_updated: float = 0.0
    ) -> dict[int, bytes]:
        """Start a round, the next one by default; return the order for each member.

        `terms` is a digest of everything else that decides what users contribute, the model for one. `min_updated` is
        the fraction of the coordinates that must be opened for the round to count.
        """
        if self.stage is not Stage.DONE or not any(self._epoch.pods):
            raise WrongStage("begin_round", self.stage.name)
        if len(terms) != DIGEST_SIZE:
            raise InvalidInput("terms", f"must have {DIGEST_SIZE} bytes, got {len(terms)}")
        if not 0 <= min_updated <= 1:
            raise InvalidInput("min_updated", f"must be in [0, 1], got {min_updated}")
        number = self.round_number + 1 if round_number is None else round_number
        if number <= self.round_number:
            raise WrongRound(number, self.round_number + 1)
        self.round_number, self._result, self._round = number, None, None
        self._forget_sizes()
        self._round = ServerRound(self._epoch, number, terms, min_updated)
        self.dropped = {Stage.SHARE_KEYS.name: self._round.absent}
        return self._go_to(Stage.UPLOAD, self._round.orders())

    def close_stage(self) -> dict[int, bytes]:
        """End the stage: count who dropped out, and return the next message for each who did not.

        Raises `ThresholdNotMet` or `TooLittleOpened` when too little is left; then the round is over. After UNMASK the
        answer is empty and `result` is set.
        """
        if self.stage is Stage.DONE:
            raise WrongStage("close_stage", self.stage.name)
        stage, heard, jury = self.stage, len(self._heard), self._epoch.jury
        if stage is Stage.DRAW and jury and jury.missing:
            jury.give_up()
            return self._go_to(Stage.DRAW, self._epoch.name_jurors(jury))
        self.dropped[stage.name] = len(self._present) - heard
        if stage is Stage.ADVERTISE_KEYS and jury:
            return self._go_to(Stage.DRAW, self._epoch.name_jurors(jury))
        self._stage = Stage.DONE  # A round that fails below is over.
        if stage in (Stage.ADVERTISE_KEYS, Stage.DRAW):
            outbound = self._epoch.draw(self.epoch_number, self.round_number + 1)
            self.received_bytes[Stage.ADVERTISE_KEYS.name] = {user: len(data) for user, data in outbound.items()}
            return outbound
        current = _kept(self._round)
        if stage is Stage.UNMASK:
            self._result = current.open(heard, self.threads, self.dropped, self.sent_bytes, self.received_bytes)
            return {}
        current.close(stage, heard)
        following = next_stage(stage, self.params.confirm)
        return self._go_to(following, current.requests(following))

    def _go_to(self, stage: Stage, outbound: dict[int, bytes]) -> dict[int, bytes]:
        self._stage = stage
        self._present, self._heard = set(outbound), set()
        self.received_bytes[stage.name] = {user: len(data) for user, data in outbound.items()}
        return outbound

    def _forget_sizes(self) -> None:
        stages = (
            (Stage.ADVERTISE_KEYS, Stage.DRAW, Stage.SHARE_KEYS)
            if self.stage is Stage.ADVERTISE_KEYS
            else (Stage.SHARE_KEYS, *round_stages(self.params.confirm))
        )
        self.sent_bytes: Sizes = {stage.name: {} for stage in stages}
        """By stage and user: bytes of this round; before the first round, of the set-up."""
        self.received_bytes: Sizes = {stage.name: {} for stage in stages}


def _kept(value: Kept | None) -> Kept:
    """Return what an earlier stage has set."""
    assert value is not None  # noqa: S101  # The stages run in order.
    return value
