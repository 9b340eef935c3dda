"""The server's side of one round: the protocol's `Server`, fed through Flower.

Users of the protocol are numbered; nodes of Flower have ids. This file knows both and keeps them apart: without a
roster nodes are numbered as they come, with one a node has the number that it proves. It sends stages, feeds replies to
the state machine, counts whoever fell silent or sent something that does not fit, and never lets one node's reply end
the round for the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from sparsesecagg.engines.flower.courier import Courier, by_request
from sparsesecagg.engines.flower.errors import MissingMod
from sparsesecagg.engines.flower.history import RoundRecord
from sparsesecagg.engines.flower.invitations import Invitation
from sparsesecagg.engines.flower.keys import advertisement
from sparsesecagg.engines.flower.records import (
    RAISED,
    Packet,
    Value,
    is_ours,
    is_refusal,
    read_packet,
    reason_of,
    wire_bytes,
)
from sparsesecagg.engines.flower.seats import Challenge, Claim, Seats
from sparsesecagg.errors import SparseSecAggError, WrongRound, WrongStage
from sparsesecagg.protocol import Result, RoundParameters, Server, Stage

_LOG = logging.getLogger("flwr")


@dataclass
class SecureRound:
    """One round among the invited nodes."""

    params: RoundParameters
    invitations: Sequence[Invitation]
    courier: Courier
    timeouts: Mapping[Stage, float | None]
    record: RoundRecord
    announced: dict[int, bytes]
    """By node: keys that were announced early. They leave when they are used, and come in at UNMASK."""
    upload_fields: Mapping[str, Value] = field(default_factory=dict)
    """What an UPLOAD message says beside the shares: the terms."""

    seats: Seats | None = None
    """In an authenticated round: which nodes have proven to be which users."""

    def __post_init__(self) -> None:
        self._server = Server(self.params)
        self._invited = {invitation.node: invitation for invitation in self.invitations}
        self._user_of = (
            self.seats.known(self._invited) if self.seats else {node: user for user, node in enumerate(self._invited)}
        )
        self._challenge = Challenge()
        self._refusals: list[str] = []
        self._uploads: dict[int, Message] = {}
        self._upload_start = 0.0

    def exchange_keys(self, grid: Grid) -> list[Message]:
        """Run ADVERTISE_KEYS and SHARE_KEYS; return the UPLOAD messages."""
        with self._failures_at(Stage.ADVERTISE_KEYS):
            directory = self._advertise_keys(grid)
        with self._failures_at(Stage.SHARE_KEYS):
            terms: dict[int, Mapping[str, Value]] = {
                user: {"params": self.params.encode(), "user": user} for user in directory
            }
            delivery = self._talk(grid, Stage.SHARE_KEYS, self._messages(Stage.SHARE_KEYS, directory, terms))
        node_of = {user: node for node, user in self._user_of.items()}
        content = {user: self._invited[node_of[user]].content for user in delivery}
        fields = dict.fromkeys(delivery, self.upload_fields)
        self._uploads = self._messages(Stage.UPLOAD, delivery, fields, content)
        self._upload_start = time.perf_counter()
        return list(self._uploads.values())

    def open_sum(self, grid: Grid, replies: Iterable[Message]) -> Result:
        """Add the uploads that arrived, run CONFIRM with a roster, then UNMASK; return what the round came to."""
        with self._failures_at(Stage.UPLOAD):
            self.record.exchanges += 1
            self.record.stages[Stage.UPLOAD.name].seconds = time.perf_counter() - self._upload_start
            sorted_replies, strangers = by_request(self._uploads, replies)
            self.record.rejected += strangers
            self._uploads = {}
            requests = self._take(Stage.UPLOAD, sorted_replies)
        if self.params.authenticated:
            with self._failures_at(Stage.CONFIRM):
                requests = self._talk(grid, Stage.CONFIRM, self._messages(Stage.CONFIRM, requests))
        with self._failures_at(Stage.UNMASK):
            self._talk(grid, Stage.UNMASK, self._messages(Stage.UNMASK, requests))
        result = self._server.result
        assert result is not None  # noqa: S101  # UNMASK was closed without an error.
        self.record.complete(result)
        return result

    # Stages

    def _advertise_keys(self, grid: Grid) -> dict[int, bytes]:
        """Use the keys that were announced early, and ask the others for theirs."""
        early = {node: self.announced.pop(node) for node in self._user_of if node in self.announced}
        for node, announcement in early.items():
            with self._timed(Stage.ADVERTISE_KEYS):
                user = self._user_of[node]
                try:
                    self._server.receive(advertisement(announcement, user, self.params), sender=user)
                except SparseSecAggError as error:
                    self._turn_down(Stage.ADVERTISE_KEYS, node, error)
        others = [node for node in self._invited if node not in early]
        if not others:
            return self._close(Stage.ADVERTISE_KEYS)
        for node in others:
            self.announced.pop(node, None)  # Whoever is asked makes new keys, and forgets what it announced.
        params = self.params.encode()
        messages = {}
        for node in others:
            # Without a roster a node is told its number; with one, it says and proves it.
            asked: dict[str, Value] = (
                {"challenge": self._challenge.public} if self.seats else {"user": self._user_of[node]}
            )
            messages[node] = self._message(Stage.ADVERTISE_KEYS, node, b"", {"params": params, **asked})
        return self._talk(grid, Stage.ADVERTISE_KEYS, messages)

    def _proven_user(self, node: int, packet: Packet) -> int:
        """Return the user that a node proves to be, and give it its seat; raises `UnprovenNode`."""
        assert self.seats is not None  # noqa: S101  # Only asked where there is a roster.
        claim = Claim(self.params, node, packet.int_field("user"), packet.payload)
        self._challenge.verify(claim, self.seats.roster, packet.bytes_field("proof"))
        self.seats.take(claim.user, node, self._invited)
        self._user_of[node] = claim.user
        return claim.user

    # Talking

    def _messages(
        self,
        stage: Stage,
        payloads: Mapping[int, bytes],
        fields: Mapping[int, Mapping[str, Value]] | None = None,
        content: Mapping[int, RecordDict] | None = None,
    ) -> dict[int, Message]:
        """Return one message per user, by node."""
        node_of = {user: node for node, user in self._user_of.items()}
        return {
            node_of[user]: self._message(
                stage, node_of[user], payload, (fields or {}).get(user, {}), (content or {}).get(user)
            )
            for user, payload in payloads.items()
        }

    def _message(
        self,
        stage: Stage,
        node: int,
        payload: bytes,
        fields: Mapping[str, Value],
        content: RecordDict | None = None,
    ) -> Message:
        """Return a message to a node, and count its bytes without the model."""
        packet = Packet(stage, self.params.round_number, payload, fields)
        self.record.stages[stage.name].received.append(packet.codec_bytes)
        return self._invited[node].message(packet, self.timeouts[stage], content)

    def _talk(self, grid: Grid, stage: Stage, messages: Mapping[int, Message]) -> dict[int, bytes]:
        start = time.perf_counter()
        replies = self.courier.exchange(grid, messages, self.timeouts[stage])
        self.record.exchanges += 1
        self.record.stages[stage.name].seconds = time.perf_counter() - start
        return self._take(stage, replies)

    def _take(self, stage: Stage, replies: Mapping[int, Message]) -> dict[int, bytes]:
        """Feed the replies to the protocol and close the stage; return the next message for each user."""
        without_mod: list[str] = []
        for node, reply in replies.items():
            if reply.has_error():
                self._note_error(stage, node, reply, without_mod)
            elif not is_ours(reply.content):
                without_mod.append("it sent a plain reply")
                self.record.rejected += 1
            else:
                self._accept(stage, node, reply)
        if without_mod:
            missing = MissingMod(len(without_mod), without_mod[0])
            if len(without_mod) == len(replies):
                raise missing
            _LOG.warning("SecAgg: %s", missing)
        return self._close(stage)

    def _accept(self, stage: Stage, node: int, reply: Message) -> None:
        """Hand one reply to the protocol; whatever does not fit is turned down and its node has dropped out."""
        try:
            packet = read_packet(reply.content)
            if packet.round_number != self.params.round_number:
                raise WrongRound(packet.round_number, self.params.round_number)
            if packet.stage is not stage:
                raise WrongStage(packet.stage.name, stage.name)
            with self._timed(stage):
                proving = self.seats is not None and stage is Stage.ADVERTISE_KEYS
                user = self._proven_user(node, packet) if proving else self._user_of[node]
                self._server.receive(packet.payload, sender=user)
        except SparseSecAggError as error:
            self._turn_down(stage, node, error)
            return
        keys, seconds = packet.fields.get("keys"), packet.fields.get("seconds")
        if stage is Stage.UNMASK and isinstance(keys, bytes):
            self.announced[node] = keys
        figures = self.record.stages[stage.name]
        figures.codec.append(packet.codec_bytes)
        figures.wire.append(wire_bytes(reply))
        if isinstance(seconds, float) and 0 <= seconds < 1e9:
            figures.client_seconds.append(seconds)

    def _close(self, stage: Stage) -> dict[int, bytes]:
        with self._timed(stage):
            try:
                return self._server.close_stage()
            finally:
                self.record.dropped = dict(self._server.dropped)

    # What goes wrong

    def _note_error(self, stage: Stage, node: int, reply: Message, without_mod: list[str]) -> None:
        reason = reason_of(reply)
        if is_refusal(reply):
            self._refusals.append(reason)
        elif stage is Stage.ADVERTISE_KEYS and reply.error.code == RAISED:
            # The mod does not call the train function at this stage, and yet it was called.
            without_mod.append(f"which raised {reason}")
        _LOG.info("SecAgg: node %d dropped out at %s: %s", node, stage.name, reason)

    def _turn_down(self, stage: Stage, node: int, error: SparseSecAggError) -> None:
        self.record.rejected += 1
        _LOG.warning("SecAgg: a %s message of node %d was turned down: %s", stage.name, node, error)

    @contextmanager
    def _failures_at(self, stage: Stage) -> Iterator[None]:
        """Note where and why a round ends, with the clients' own reasons."""
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
            self.record.stages[stage.name].server_seconds += time.perf_counter() - start
