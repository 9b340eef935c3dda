"""The server's side of a run: a state machine without I/O.

`begin_round` starts a round, `handle` takes one client message at a time and says what to send when a stage is
complete, `close_stage` ends a stage without those who have not answered. A message that does not fit raises a typed
error and changes nothing.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import msgspec

from sparsesecagg import errors
from sparsesecagg.crypto.identity import Roster
from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.errors import ThresholdNotMet, TooLittleOpened, WrongRound, WrongStage, require
from sparsesecagg.patterns.groups import Groups
from sparsesecagg.protocol.combine import Combine, Result, Sum
from sparsesecagg.protocol.epoch import AHEAD, NO_CONTEXT
from sparsesecagg.protocol.messages import (
    AdvertiseKeys,
    Message,
    Round,
    ShareKeys,
    Unmask,
    Upload,
    decode_client_message,
)
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.server_group import FALSE_DEALER, GroupRound, GroupState, Kept, ServerEpoch
from sparsesecagg.protocol.stages import ROUND_STAGES, SERVER_TRANSITIONS, STAGES, Stage, after

MESSAGE_OF: dict[Stage, type[Message]] = {
    Stage.ADVERTISE_KEYS: AdvertiseKeys,
    Stage.UPLOAD: Upload,
    Stage.UNMASK: Unmask,
}
"""What `receive` takes in each stage; key packages come at any time."""

Sizes = dict[str, dict[int, int]]
"""By stage and user: bytes."""


class ServerState(msgspec.Struct, frozen=True, array_like=True):
    """A run between rounds, as bytes."""

    params: bytes
    epoch_number: Round
    round_number: Round
    groups: list[GroupState | None]
    excluded: dict[int, str]
    accusers: dict[int, list[int]]


class Server:
    """A run. Start rounds with `begin_round`, feed it with `handle`, end a stage with `close_stage`, read `result`.

    Groups are opened in as many `threads`, by default one for each processor, and a large one
    by several if there are few. `combine` makes what adds them up.
    """

    def __init__(
        self,
        params: Parameters,
        roster: Roster | None = None,
        threads: int | None = None,
        combine: Combine = Sum,
    ) -> None:
        errors.require_type("params", params, Parameters)
        errors.require_type("roster", roster, Roster, optional=True)
        params.check()
        some = threads is None or errors.whole_number("threads", threads) >= 1
        require("threads", some, f"must be at least 1, got {threads}")
        known = not params.authenticated or (roster is not None and roster.digest == params.roster_digest)
        require("roster", known, "must be given in an authenticated run, the one that the parameters name")
        self.params = params
        self.roster = roster if params.authenticated else None
        self.threads = threads or os.cpu_count() or 1
        self.round_number = 0
        self.excluded: dict[int, str] = {}
        """By user that gets no more rounds: why."""
        self.combine = combine
        self.accusers: dict[int, set[int]] = {}
        """By user: who found no valid tag or share of it, in all rounds."""
        self._result: Result | None = None
        self._begin_epoch(1)

    # Receiving

    def handle(self, sender: int, data: bytes) -> dict[int, bytes]:
        """Take one message of the user that the transport knows it came from, and close the stage if it is the last.

        Returns the next message for each user then, and nothing while others may still answer. Raises as `receive` does
        for a message that does not fit, and as `close_stage` does when a round fails.
        """
        self.receive(sender, data)
        if self.stage is Stage.SHARE_KEYS or len(self._heard) < len(self._present):
            return {}
        return self.close_stage()

    def receive(self, sender: int | None, data: bytes) -> int:
        """Take one message; return its sender.

        `sender` is who the transport says it came from, or None if it does not know. Raises a typed error, and changes
        nothing, for a message that is malformed, late, early, of another round, a second one, or from somebody unknown.
        """
        message = decode_client_message(data)
        user = message.sender
        if sender not in (None, user):
            raise errors.WrongSender(user, sender)
        if user >= self.params.clients:
            raise errors.UnknownSender(user)
        if isinstance(message, ShareKeys):
            self._epoch.take_package(message, self.round_number)
            sizes = self.sent_bytes[Stage.SHARE_KEYS.name]
            sizes[user] = sizes.get(user, 0) + len(data)
            return user
        if not isinstance(message, MESSAGE_OF.get(self.stage, ())):
            raise WrongStage(type(message).__name__, self.stage.name)
        expected = self.epoch_number if self.stage is Stage.ADVERTISE_KEYS else self.round_number
        if message.round_number != expected:
            raise WrongRound(message.round_number, expected)
        if user not in self._present:
            raise errors.UnknownSender(user)
        if user in self._heard:
            raise errors.DuplicateMessage(user, self.stage.name)
        if isinstance(message, AdvertiseKeys):
            self._epoch.take_keys(message)
        else:
            self._take_answer(message)
        self._heard.add(user)
        self.sent_bytes[self.stage.name][user] = len(data)
        return user

    def _take_answer(self, message: Upload | Unmask) -> None:
        group, index = self._epoch.group_of(message.sender)
        current = self._rounds[group.epoch.group.number]
        if message.binding != current.header.binding:
            raise errors.WrongBinding(f"user {message.sender}")
        if isinstance(message, Upload):
            current.take_upload(index, message)
        else:
            current.take_unmask(index, message)

    # What one may ask

    @property
    def epoch_number(self) -> int:
        """The epoch that the run is in."""
        return self._epoch.number

    @property
    def groups(self) -> Groups:
        """The groups of this epoch."""
        return self._epoch.drawn

    @property
    def stage(self) -> Stage:
        """What the server waits for; `SERVER_TRANSITIONS` says what may follow."""
        return self._stage

    @property
    def result(self) -> Result | None:
        """The outcome of the last round; None before the first, during a round, and after one that failed."""
        return self._result

    @property
    def rounds(self) -> list[GroupRound]:
        """The current round of each group that takes part; none before the first."""
        return list(self._rounds.values())

    @property
    def waiting_for(self) -> set[int]:
        """The users that may still send in this stage; between rounds, those without a key package for the next."""
        if self.stage is Stage.SHARE_KEYS:
            return self._epoch.users - self.excluded.keys() - self.shared(self.round_number + 1)
        return self._present - self._heard

    def lacking(self, user: int) -> list[int]:
        """Return the rounds ahead for which a user could have sent its key package and has not."""
        try:
            group, index = self._epoch.group_of(user)
        except errors.UnknownSender:
            return []
        ahead = range(self.round_number + 1, self.round_number + 1 + AHEAD)
        return [number for number in ahead if index not in group.packages.get(number, {})]

    def shared(self, round_number: int) -> set[int]:
        """Return the users whose key package for a round has arrived: only they can take part in it."""
        return {
            group.epoch.user(index)
            for group in self._epoch.groups.values()
            for index in group.packages.get(round_number, {})
            if group.epoch.user(index) not in self.excluded
        }

    # The epoch

    def begin_epoch(self, epoch_number: int | None = None) -> None:
        """Ask for new keys; with several groups they are drawn anew. Epoch numbers rise; round numbers continue.

        In a run of several groups there are at most 16 epochs, because all their draws are known from the start.
        """
        number = self.epoch_number + 1 if epoch_number is None else errors.whole_number("epoch_number", epoch_number)
        comes = number > self.epoch_number or (number == self.epoch_number and not self._epoch.groups)
        require("epoch_number", comes, f"must be {self.epoch_number + 1} or more, got {number}")
        self._begin_epoch(number)

    def _begin_epoch(self, number: int) -> None:
        self._epoch = ServerEpoch(self.params, self.roster, number)
        self._rounds: dict[int, GroupRound] = {}
        self._stage = Stage.ADVERTISE_KEYS
        self._present, self._heard = set(range(self.params.clients)), set[int]()
        self.dropped: dict[str, int] = {Stage.ADVERTISE_KEYS.name: 0}
        self._forget_sizes()

    def catch_up(self, round_number: int) -> None:
        """Pass over rounds that users know of and this server does not, as after a restart."""
        if self.stage in ROUND_STAGES:
            raise WrongStage("catch_up", self.stage.name)
        self.round_number = max(self.round_number, errors.whole_number("round_number", round_number))

    # A round

    def begin_round(self, round_number: int | None = None, *, context: bytes = NO_CONTEXT) -> dict[int, bytes]:
        """Start a round, the next one by default; return the header for each member.

        `context` is a digest of everything else that decides what users contribute, the model for one.
        """
        stage = after(SERVER_TRANSITIONS, self.stage, "begin_round")
        errors.require_type("context", context, bytes)
        require("context", len(context) == DIGEST_SIZE, f"must have {DIGEST_SIZE} bytes, got {len(context)}")
        number = self.round_number + 1 if round_number is None else errors.whole_number("round_number", round_number)
        if number <= self.round_number:
            raise WrongRound(number, self.round_number + 1)
        self.round_number, self._result = number, None
        groups, kept = self._epoch.groups, Kept(self.params)
        self._rounds = {name: group.begin(number, context, self.excluded, kept) for name, group in groups.items()}
        self._forget_sizes()
        there = sum(len(group.epoch.present) for group in groups.values())
        self.dropped = {Stage.SHARE_KEYS.name: there - self._members()}
        return self._go_to(stage, {name: each.headers() for name, each in self._rounds.items()})

    def close_stage(self) -> dict[int, bytes]:
        """End the stage: count who dropped out, and return the next message for each who did not.

        Raises `ThresholdNotMet` or `TooLittleOpened` when too little is left; then the round is over (ADVERTISE_KEYS
        is not: more users may still come). After UNMASK the answer is empty and `result` is set.
        """
        stage, following = self.stage, after(SERVER_TRANSITIONS, self.stage, "close_stage")
        self.dropped[stage.name] = len(self._present) - len(self._heard)
        if stage is Stage.ADVERTISE_KEYS:
            outbound = self._epoch.publish_keys(self.round_number + 1)
            self.received_bytes[stage.name] = {user: len(data) for user, data in outbound.items()}
            self._stage = following
            return outbound
        self._stage = after(SERVER_TRANSITIONS, stage, "too few are left")  # Unless all goes well.
        if stage is Stage.UNMASK:
            self._result = self._open()
            self._stage = following
            return {}
        requests = {name: each.unmask_requests() for name, each in self._rounds.items()}
        self._require_any(stage)
        return self._go_to(following, requests)

    def _open(self) -> Result:
        """Open all groups and add them up; raise if none was opened."""
        combiner = self.combine(self.params)
        in_sum: list[int] = []
        waiting = [each for each in self.rounds if not each.lost]
        threads_each = max(1, self.threads // max(1, len(waiting)))

        def open_one(each: GroupRound) -> None:
            opened = each.open(threads_each)
            if opened:
                combiner.add(opened)
                in_sum.extend(opened.users)

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(open_one, waiting))
        excluded = self._exclude()
        self._require_any(Stage.UNMASK)
        lost = {name: each.lost for name, each in self._rounds.items() if each.lost}
        silent = [group.number for group in self.groups.groups if group.number not in self._epoch.groups]
        lost |= dict.fromkeys(silent, "too few of its users advertised keys")
        return Result(
            params=self.params,
            round_number=self.round_number,
            combined=combiner.total(),
            members=self._members(),
            survivors=tuple(sorted(in_sum)),
            lost=lost,
            dropped=dict(self.dropped),
            sent_bytes={stage: tuple(sizes.values()) for stage, sizes in self.sent_bytes.items()},
            received_bytes={stage: tuple(sizes.values()) for stage, sizes in self.received_bytes.items()},
            false_shares={
                holder: tuple(sorted(owners)) for each in self.rounds for holder, owners in each.false_shares.items()
            },
            excluded=excluded,
        )

    def _exclude(self) -> dict[int, str]:
        """Decide who gets no more rounds: who dealt or sent what is false, or has more accusers than may collude."""
        before = set(self.excluded)
        for each in self.rounds:
            for user, accusers in each.accused.items():
                known = self.accusers.setdefault(user, set())
                known |= accusers
                if len(known) > self.params.accusers:
                    self.excluded.setdefault(user, f"{len(known)} users found no valid tag or share of it")
            for user, reason in each.suspects.items():
                dealers = list(self.excluded.values()).count(FALSE_DEALER)
                if reason != FALSE_DEALER or dealers < self.params.colluders:
                    self.excluded.setdefault(user, reason)
        return {user: reason for user, reason in self.excluded.items() if user not in before}

    def _require_any(self, stage: Stage) -> None:
        """Raise if nothing can be opened any more."""
        if not all(each.lost for each in self.rounds):
            return
        heard, needed = len(self._heard), sum(each.epoch.params.quorum for each in self.rounds)
        if heard < needed:
            raise ThresholdNotMet(stage.name, heard, needed)
        raise TooLittleOpened(f"{self.rounds[0].lost} at {stage.name}")

    def _members(self) -> int:
        return sum(len(each.packages) for each in self.rounds)

    def _go_to(self, stage: Stage, messages: dict[int, dict[int, bytes]]) -> dict[int, bytes]:
        """Wait for the answers to messages, by group and index; return them by user."""
        outbound = {
            self._epoch.groups[name].epoch.user(index): data
            for name, of_group in messages.items()
            for index, data in of_group.items()
        }
        self._stage = stage
        self._present, self._heard = set(outbound), set()
        self.received_bytes[stage.name] = {user: len(data) for user, data in outbound.items()}
        return outbound

    def _forget_sizes(self) -> None:
        stages = STAGES[:2] if self.stage is Stage.ADVERTISE_KEYS else STAGES[1:]
        self.sent_bytes: Sizes = {stage.name: {} for stage in stages}
        """By stage and user: bytes of this round; before the first round, of the set-up."""
        self.received_bytes: Sizes = {stage.name: {} for stage in stages}

    # A server that is started again

    def save(self) -> bytes:
        """Return the run as bytes, for a server that is to be started again; at any time once keys were published.

        A round that is under way is over for the restored server, and the next one follows. So save before the headers
        of a round leave, since its number must not be used twice.
        """
        if not self._epoch.groups:
            raise WrongStage("save", self.stage.name)
        state = ServerState(
            params=self.params.encode(),
            epoch_number=self.epoch_number,
            round_number=self.round_number,
            groups=self._epoch.save(),
            excluded=self.excluded,
            accusers={user: sorted(accusers) for user, accusers in self.accusers.items()},
        )
        return msgspec.msgpack.encode(state)

    @staticmethod
    def restore(
        data: bytes,
        roster: Roster | None = None,
        threads: int | None = None,
        combine: Combine = Sum,
    ) -> Server:
        """Return the server that `save` wrote down; the roster of an authenticated run is given again."""
        try:
            state = msgspec.msgpack.decode(data, type=ServerState)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors.
            raise errors.MalformedMessage("the bytes are not a saved server") from None
        server = Server(Parameters.decode(state.params), roster, threads, combine)
        server._begin_epoch(state.epoch_number)
        server._epoch.restore(state.groups, state.round_number)
        server.round_number, server._stage = state.round_number, Stage.SHARE_KEYS
        server.excluded = dict(state.excluded)
        server.accusers = {user: set(accusers) for user, accusers in state.accusers.items()}
        server._forget_sizes()
        return server
