"""The server's side of a run: the protocol's `Server`, fed through Flower.

A run begins with an exchange of keys among the nodes that were chosen then, or the users of a roster. After that every
round has two exchanges, UPLOAD and UNMASK, and CONFIRM between them where it is asked for: keys of later rounds ride on
UPLOAD's replies. Users of the protocol are numbered, nodes of Flower have ids; this file knows both. It counts whoever
drops out or sends something that does not fit, and never lets one node's reply end the round for the others.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.engines.flower.courier import Courier, by_request
from sparsesecagg.engines.flower.errors import MissingMod
from sparsesecagg.engines.flower.figures import RoundRecord
from sparsesecagg.engines.flower.records import (
    RAISED,
    Packet,
    Value,
    in_one_line,
    is_ours,
    is_refusal,
    read_packet,
    reason_of,
    wire_bytes,
)
from sparsesecagg.engines.flower.seats import Challenge, Claim, Seats
from sparsesecagg.engines.flower.terms import Invitation
from sparsesecagg.errors import MalformedMessage, ProtocolError, SparseSecAggError, WrongRound, WrongStage
from sparsesecagg.protocol import Parameters, Result, Server, Stage

_LOG = logging.getLogger("flwr")
VIABLE = 0.5
"""A run goes on as long as this part of its committees can be opened, and this part of the chosen nodes are in it."""

_LARGEST_CLAIM = 1 << 40

Invited = Mapping[int, Invitation]
"""By node: what the wrapped strategy wants to send it."""


@dataclass
class SecureRun:
    """One run of the protocol among nodes of Flower."""

    params: Parameters
    courier: Courier
    timeouts: Mapping[Stage, float | None]
    seed: bytes = bytes(32)
    roster: Roster | None = None
    epoch_number: int = 1
    last_round: int = 0
    """The last round before this run: numbers are not used twice."""
    seats: Seats = field(default_factory=Seats)

    def __post_init__(self) -> None:
        self.server = Server(self.params, self.seed, self.roster)
        if self.roster is not None:
            self.server.begin_epoch(self.epoch_number)
        self.server.catch_up(self.last_round)
        self.run_config = b""
        """What most nodes say the run's configuration is, as a digest: the order is bound to it."""
        self.record = RoundRecord(0)
        self._invited: Invited = {}
        self._challenge = Challenge()
        self._refusals: list[str] = []
        self._sent: dict[int, Message] = {}
        self._uploading = 0.0

    # Before the first round

    def set_up(self, grid: Grid, invitations: Sequence[Invitation], record: RoundRecord) -> None:
        """Exchange keys, draw the groups, and take the packages of the first rounds."""
        self._look_at(invitations, record)
        with self._failures_at(Stage.ADVERTISE_KEYS):
            self._advertise_keys(grid)
            outbound = self._close()
        while self.server.stage is Stage.DRAW:
            with self._failures_at(Stage.DRAW):
                self._talk(grid, Stage.DRAW, outbound)
                outbound = self._close()
        with self._failures_at(Stage.SHARE_KEYS):
            self._talk(grid, Stage.SHARE_KEYS, outbound, self._wanted)

    def _advertise_keys(self, grid: Grid) -> None:
        fields: dict[str, Value] = {"params": self.params.encode(), "epoch": self.server.epoch_number}
        if self.roster is None:
            # Without a roster a node is told its number; with one, it says and proves it.
            for user, node in enumerate(self._invited):
                self.seats.take(user, node, ())
        else:
            fields["challenge"] = self._challenge.public
        answers: list[Packet] = []
        messages = {
            node: self._message(Stage.ADVERTISE_KEYS, node, b"", {**fields, **self._number_of(node)})
            for node in self._invited
        }
        self._exchange(grid, Stage.ADVERTISE_KEYS, messages, answers.append)
        told = Counter(packet.fields.get("run-config") for packet in answers)
        usual = told.most_common(1)[0][0] if told else b""
        self.run_config = usual if isinstance(usual, bytes) else b""
        if self.roster is not None:
            # Beyond what colluding users could make up: somebody honest has seen at least that much.
            rounds, draws = (
                sorted((_number(packet, name) for packet in answers), reverse=True)[self.params.colluders :][:1] or [0]
                for name in ("last-round", "last-draw")
            )
            self.server.catch_up(rounds[0], draws[0])

    # Who is in it

    def ready(self, grid: Grid, invitations: Sequence[Invitation], record: RoundRecord) -> bool:
        """Return whether the next round can be played by these nodes; ask for packages that are missing, if need be."""
        self._look_at(invitations, record)
        if not self._pays(self._holding()):
            asked: dict[int, Message] = {}
            for node in self._invited:
                user = self.seats.user(node)
                if self._may_deal(user):
                    asked[node] = self._asking_for_packages(node)
            self._exchange(grid, Stage.SHARE_KEYS, asked)
        return self._pays(self._holding())

    def _holding(self) -> set[int]:
        """Return the invited users whose packages of the next round are here."""
        return self.server.dealt(self.server.round_number + 1).intersection(self.seats.among(self._invited))

    def _may_deal(self, user: int | None) -> bool:
        """Return whether a node should be asked for packages: a user that owes some, or one that is not known yet."""
        return self.roster is not None if user is None else bool(self.server.lacking(user))

    def _pays(self, users: set[int]) -> bool:
        """Return whether these users are enough, for the groups and among the nodes that were chosen."""
        return len(users) >= VIABLE * len(self._invited) and self._openable(users) >= VIABLE

    def _openable(self, users: set[int]) -> float:
        """Return the fraction of the committees that these users could open."""
        opened = 0
        for pod in self.server.groups.pods:
            places = {place for user, place in pod.place.items() if user in users}
            if len(places) >= self.params.threshold_of(len(pod)):
                opened += sum(
                    len(places.intersection(members.tolist())) >= self.params.survivors_of(len(members))
                    for members in pod.committees
                )
        return opened / self.params.committees

    # A round

    def begin_round(self, terms: bytes, min_updated: float, fields: Mapping[str, Value]) -> list[Message]:
        """Return the UPLOAD messages; nodes that have no package for this round are asked for those of later ones."""
        self._abandon()
        record = self.record
        with self._failures_at(Stage.UPLOAD):
            orders = self.server.begin_round(terms=terms, min_updated=min_updated)
            record.protocol_round = self.server.round_number
            self._sent = {}
            for node, invitation in self._invited.items():
                user = self.seats.user(node)
                if user is not None and user in orders:
                    told: dict[str, Value] = {**fields, **self._number_of(node), **self._wanted(user)}
                    message = self._message(Stage.UPLOAD, node, orders[user], told, invitation.content)
                    self._sent[node] = message
                elif self._may_deal(user):
                    self._sent[node] = self._asking_for_packages(node)
        self._uploading = time.perf_counter()
        return list(self._sent.values())

    def finish_round(self, grid: Grid, replies: Iterable[Message]) -> Result:
        """Add the uploads that arrived, run CONFIRM where it is asked for, then UNMASK; return the outcome."""
        with self._failures_at(Stage.UPLOAD):
            self.record.exchanges += 1
            self.record.at(Stage.UPLOAD).seconds = time.perf_counter() - self._uploading
            sorted_replies, strangers = by_request(self._sent, replies)
            self.record.rejected += strangers
            self._take(Stage.UPLOAD, sorted_replies)
            requests = self._close()
        if self.params.confirm:
            with self._failures_at(Stage.CONFIRM):
                self._talk(grid, Stage.CONFIRM, requests)
                requests = self._close()
        with self._failures_at(Stage.UNMASK):
            self._talk(grid, Stage.UNMASK, requests)
            self._close()
        result = self.server.result
        assert result is not None  # noqa: S101  # UNMASK was closed without an error.
        self.record.complete(result)
        for holder in result.false_shares:
            _LOG.warning("SecAgg: user %d sent or was dealt shares that are false", holder)
        return result

    def _abandon(self) -> None:
        """End a round that nobody has finished, as when another strategy around this one has failed."""
        while self.server.stage is not Stage.DONE:
            with suppress(ProtocolError):
                self.server.close_stage()

    # Messages

    def _look_at(self, invitations: Sequence[Invitation], record: RoundRecord) -> None:
        self._invited = {invitation.node: invitation for invitation in invitations}
        self.record, self._refusals, self._challenge = record, [], Challenge()
        record.cohort, record.alpha = self.params.clients, self.params.selection_probability

    def _number_of(self, node: int) -> dict[str, Value]:
        user = self.seats.user(node)
        return {} if self.roster is not None or user is None else {"user": user}

    def _wanted(self, user: int) -> dict[str, Value]:
        lacking = self.server.lacking(user)
        return {"wanted": lacking} if lacking else {}  # Flower can't count the bytes of an empty list.

    def _asking_for_packages(self, node: int) -> Message:
        """Return a small message that asks for packages only; a node that is not known yet proves who it is."""
        following, user = self.server.round_number + 1, self.seats.user(node)
        if user is not None:
            return self._message(Stage.SHARE_KEYS, node, b"", {**self._number_of(node), **self._wanted(user)})
        fields: dict[str, Value] = {"challenge": self._challenge.public, "wanted": [following, following + 1]}
        return self._message(Stage.SHARE_KEYS, node, b"", fields)

    def _message(
        self,
        stage: Stage,
        node: int,
        payload: bytes,
        fields: Mapping[str, Value],
        content: RecordDict | None = None,
    ) -> Message:
        """Return a message to a node, and count its bytes without the model."""
        packet = Packet(stage, self.server.round_number, payload, fields={"run": self.params.run, **fields})
        self.record.at(stage).received.append(packet.codec_bytes)
        return self._invited[node].message(packet, self.timeouts[stage], content)

    def _talk(
        self,
        grid: Grid,
        stage: Stage,
        payloads: Mapping[int, bytes],
        fields: Callable[[int], Mapping[str, Value]] = lambda user: {},  # noqa: ARG005
    ) -> None:
        """Run an exchange among users."""
        node_of = self.seats.among(self._invited)
        messages = {
            node_of[user]: self._message(
                stage, node_of[user], payload, {**self._number_of(node_of[user]), **fields(user)}
            )
            for user, payload in payloads.items()
            if user in node_of
        }
        self._exchange(grid, stage, messages)

    def _exchange(
        self,
        grid: Grid,
        stage: Stage,
        messages: Mapping[int, Message],
        answered: Callable[[Packet], None] | None = None,
    ) -> None:
        if not messages:
            return
        start = time.perf_counter()
        replies = self.courier.exchange(grid, messages, self.timeouts[stage])
        self.record.exchanges += 1
        self.record.at(stage).seconds += time.perf_counter() - start
        self._sent = dict(messages)
        self._take(stage, replies, answered)

    # Replies

    def _take(
        self, stage: Stage, replies: Mapping[int, Message], answered: Callable[[Packet], None] | None = None
    ) -> None:
        """Feed the replies to the protocol."""
        without_mod: list[str] = []
        for node, reply in replies.items():
            if reply.has_error():
                self._note_error(stage, node, reply, without_mod)
            elif not is_ours(reply.content):
                without_mod.append("it sent a plain reply")
                self.record.rejected += 1
            else:
                self._accept(node, reply, answered)
        if without_mod:
            missing = MissingMod(len(without_mod), without_mod[0])
            if len(without_mod) == len(replies):
                raise missing
            _LOG.warning("SecAgg: %s", missing)

    def _accept(self, node: int, reply: Message, answered: Callable[[Packet], None] | None) -> None:
        """Hand one reply to the protocol; whatever does not fit is rejected and its node has dropped out."""
        asked = read_packet(self._sent[node].content)
        try:
            packet = read_packet(reply.content)
            if packet.round_number != asked.round_number:
                raise WrongRound(packet.round_number, asked.round_number)
            if packet.stage is not asked.stage:
                raise WrongStage(packet.stage.name, asked.stage.name)
            user = self.seats.user(node)
            if "challenge" in asked.fields and "refused" not in packet.fields:
                user = self._proven_user(node, packet)
            if user is None:
                raise MalformedMessage("nobody knows which user this node is")
            with self._timed(packet.stage):
                for package in packet.packages:
                    self.server.receive(package, sender=user)
                if isinstance(refused := packet.fields.get("refused"), str):
                    self._note_refusal(packet.stage, node, in_one_line(refused))
                elif packet.payload or packet.stage is not Stage.SHARE_KEYS:
                    self.server.receive(packet.payload, sender=user)
        except SparseSecAggError as error:
            self._reject(asked.stage, node, error)
            return
        if answered is not None:
            answered(packet)
        self._count(packet, reply)

    def _proven_user(self, node: int, packet: Packet) -> int:
        """Return the user that a node proves to be, and give it its seat; raises `UnprovenNode`."""
        assert self.roster is not None  # noqa: S101  # Only asked where there is a roster.
        keys = packet.payload or b"".join(packet.packages)
        claim = Claim(self.params.run, node, packet.int_field("user"), keys)
        self._challenge.verify(claim, self.roster, packet.bytes_field("proof"))
        self.seats.take(claim.user, node, self._invited)
        return claim.user

    def _count(self, packet: Packet, reply: Message) -> None:
        figures = self.record.at(packet.stage)
        figures.codec.append(packet.codec_bytes)
        figures.wire.append(wire_bytes(reply))
        if packet.packages:
            self.record.at(Stage.SHARE_KEYS).codec.append(packet.package_bytes)
        seconds = packet.fields.get("seconds")
        if isinstance(seconds, float) and 0 <= seconds < 1e9:
            figures.client_seconds.append(seconds)

    def _close(self) -> dict[int, bytes]:
        with self._timed(self.server.stage):
            try:
                return self.server.close_stage()
            finally:
                self.record.dropped |= self.server.dropped

    # What goes wrong

    def _note_error(self, stage: Stage, node: int, reply: Message, without_mod: list[str]) -> None:
        reason = reason_of(reply)
        if is_refusal(reply):
            self._note_refusal(stage, node, reason)
            return
        if stage is Stage.ADVERTISE_KEYS and reply.error.code == RAISED:
            # The mod does not call the train function at this stage, and yet it was called.
            without_mod.append(f"which raised {reason}")
        _LOG.info("SecAgg: node %d dropped out at %s: %s", node, stage.name, reason)

    def _note_refusal(self, stage: Stage, node: int, reason: str) -> None:
        self._refusals.append(reason)
        _LOG.info("SecAgg: node %d refused at %s: %s", node, stage.name, reason)

    def _reject(self, stage: Stage, node: int, error: SparseSecAggError) -> None:
        self.record.rejected += 1
        _LOG.warning("SecAgg: a %s message of node %d was rejected: %s", stage.name, node, error)

    @contextmanager
    def _failures_at(self, stage: Stage) -> Iterator[None]:
        """Note where and why a round ends, with the nodes' own reasons."""
        try:
            yield
        except SparseSecAggError as error:
            self.record.failed_at, self.record.failure = stage.name, str(error)
            if self._refusals:
                self.record.failure += f"; {len(self._refusals)} node(s) refused: {self._refusals[0]}"
            raise

    @contextmanager
    def _timed(self, stage: Stage) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.record.at(stage).server_seconds += time.perf_counter() - start


def _number(packet: Packet, name: str) -> int:
    value = packet.fields.get(name)
    return value if isinstance(value, int) and 0 <= value <= _LARGEST_CLAIM else 0
