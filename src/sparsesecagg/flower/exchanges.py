"""Exchanges with the nodes of a run: messages out, replies in, and into the protocol's `Server`.

Users of the protocol are numbered, nodes of Flower have ids; this file knows both. It counts whoever drops out or sends
something that does not fit, and never lets one node's reply end the round for the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.flower.courier import Courier
from sparsesecagg.flower.errors import MissingMod, UnprovenNode, remedy_of
from sparsesecagg.flower.figures import RoundRecord
from sparsesecagg.flower.node import Challenge, Claim
from sparsesecagg.flower.records import (
    RAISED,
    Invitation,
    Packet,
    Value,
    in_one_line,
    is_ours,
    is_refusal,
    read_packet,
    reason_of,
    wire_bytes,
)
from sparsesecagg.flower.way_down import HELD, WayDown
from sparsesecagg.errors import MalformedMessage, SparseSecAggError, WrongRound, WrongStage
from sparsesecagg.protocol import Server, Stage

_LOG = logging.getLogger("flwr")

Invited = Mapping[int, Invitation]
"""By node: what the wrapped strategy wants to send it."""


@dataclass
class Seats:
    """Which node is which user, for as long as the run lasts: given out in a plain run, proven with a roster."""

    _node_of: dict[int, int] = field(default_factory=dict)
    _user_of: dict[int, int] = field(default_factory=dict)

    def among(self, nodes: Collection[int]) -> dict[int, int]:
        """Return the node of each user that is one of these."""
        return {self._user_of[node]: node for node in nodes if node in self._user_of}

    @property
    def taken(self) -> list[tuple[int, int]]:
        """All users that have a node, with it."""
        return sorted(self._node_of.items())

    def user(self, node: int) -> int | None:
        """Return the user that a node is."""
        return self._user_of.get(node)

    def take(self, user: int, node: int, present: Collection[int]) -> None:
        """Note that a node is a user.

        A user has one node. Another one takes its place only when that node is gone, as after a restart.
        """
        holder = self._node_of.get(user, node)
        if holder != node and holder in present:
            raise UnprovenNode(node, f"user {user} of the roster is node {holder}, which is present")
        self._user_of.pop(holder, None)
        if node in self._user_of:  # A node that is enrolled anew under another number leaves its old one.
            del self._node_of[self._user_of[node]]
        self._node_of[user], self._user_of[node] = node, user


class Exchanges:
    """The nodes that are invited to a round, the figures of the round, and what is said between both sides."""

    def __init__(
        self, server: Server, courier: Courier, timeouts: Mapping[Stage, float | None], roster: Roster | None
    ) -> None:
        self.server = server
        self.params = server.params
        self.courier = courier
        self.timeouts = timeouts
        self.roster = roster
        self.seats = Seats()
        self.record = RoundRecord(0)
        self.way_down = WayDown()
        self._invited: Invited = {}
        self._challenge = Challenge()
        self._refusals: list[str] = []
        self._sent: dict[int, Message] = {}
        """By node: what it was asked last."""

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
        if packet.stage is Stage.UPLOAD and "refused" not in packet.fields:
            self.way_down.heard(node, packet.fields.get(HELD))
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
        if stage is Stage.UPLOAD:
            self.way_down.lost(node)
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
            if remedy := remedy_of(error):
                self.record.failure += f"; {remedy}"
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
