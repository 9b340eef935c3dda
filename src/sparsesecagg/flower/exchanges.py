"""Exchanges with the nodes of a run: messages out, replies in, and into the protocol's `Server`.

Users of the protocol are numbered, nodes of Flower have ids; this file knows both. It counts whoever drops out or sends
something that does not fit, and never lets one node's reply end the round for the others: whatever a reply holds, it is
either taken or rejected.

Flower's own `send_and_receive` polls every three seconds, this one faster; `PatientGrid` puts it under Flower's loop. A
reply counts for the node that was asked, whatever sender it claims: errors carry false ones. A node that has not
answered keeps its message outstanding and is not asked again until it has answered or the message has expired, because
a second message to a busy node would only be refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from sparsesecagg.errors import MalformedMessage, SparseSecAggError, WrongRound, WrongStage
from sparsesecagg.flower.context import Invitation
from sparsesecagg.flower.errors import MissingMod, UnprovenNode
from sparsesecagg.flower.figures import RoundRecord
from sparsesecagg.flower.node import Challenge, Claim
from sparsesecagg.flower.records import RAISED, Packet, Value, is_ours, is_refusal, read_packet, reason_of, wire_bytes
from sparsesecagg.protocol import Server, Stage

_LOG = logging.getLogger("flwr")

_SLOWEST_POLL = 3.0  # Flower's own pause between two looks for replies.
Messages = Mapping[int, Message]
"""By the node that they go to, or come from."""
Answered = Callable[[int, Packet], None]
"""Told the node and its packet, once for each that was taken."""


@dataclass
class Courier:
    """Sends messages to nodes and collects the replies."""

    poll_seconds: float = 0.2
    _outstanding: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By message id: the node that has not answered, and when the message expires."""

    def exchange(self, grid: Grid, messages: Messages, timeout: float | None) -> dict[int, Message]:
        """Send each node its message and return the replies that arrive in time, by node.

        Nodes that still owe an answer are left out, which makes them dropouts of this exchange.
        """
        busy = self.busy_nodes(grid)
        pending = self._push(grid, {node: message for node, message in messages.items() if node not in busy})
        replies: dict[int, Message] = {}
        start = time.monotonic()
        deadline = float("inf") if timeout is None else start + timeout
        while pending:
            for reply in grid.pull_messages(list(pending)):
                node = pending.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    replies[node] = reply
            now = time.monotonic()
            if not pending or now >= deadline:
                break
            # Who has waited long for training need not look five times a second.
            pause = min(_SLOWEST_POLL, max(min(self.poll_seconds, (deadline - start) / 20), (now - start) / 20))
            time.sleep(min(pause, deadline - now))
        for message_id, node in pending.items():
            sent = messages[node].metadata
            self._outstanding[message_id] = node, sent.created_at + sent.ttl
        return replies

    @staticmethod
    def wait_for_nodes(grid: Grid, count: int, timeout: float) -> None:
        """Wait until so many nodes are there, or time is up: a strategy may begin with two."""
        deadline = time.monotonic() + timeout
        while len(list(grid.get_node_ids())) < count and time.monotonic() < deadline:
            time.sleep(min(1.0, timeout / 10))

    def busy_nodes(self, grid: Grid) -> set[int]:
        """Return the nodes that still owe an answer; late answers are taken and thrown away."""
        now = time.time()
        self._outstanding = {key: owed for key, owed in self._outstanding.items() if owed[1] > now}
        if self._outstanding:
            for reply in grid.pull_messages(list(self._outstanding)):
                self._outstanding.pop(reply.metadata.reply_to_message_id, None)
        return {node for node, _ in self._outstanding.values()}

    def _push(self, grid: Grid, messages: Messages) -> dict[str, int]:
        """Send the messages; return the node of each message id. A message that can't be sent is a dropout."""
        if not messages:
            return {}
        ids = list(grid.push_messages(list(messages.values())))
        if len(ids) == len(messages):
            return {key: node for key, node in zip(ids, messages, strict=True) if key}
        # Some grids leave out what they could not send; then the ids that they wrote into the messages tell.
        sent = set(ids)
        written = {message.metadata.message_id: node for node, message in messages.items()}
        return {key: node for key, node in written.items() if key in sent}


def by_node(messages: Iterable[Message]) -> dict[int, Message]:
    """Return messages by the node that they go to."""
    return {message.metadata.dst_node_id: message for message in messages}


def by_request(requests: Messages, replies: Iterable[Message]) -> tuple[dict[int, Message], int]:
    """Sort replies that somebody else has collected by the node that was asked; count those that fit no request.

    A second reply to one request does not fit. Where a grid gives messages no ids, the sender decides.
    """
    asked = {message.metadata.message_id: node for node, message in requests.items()}
    nameless = len(asked) != len(requests) or "" in asked
    sorted_replies: dict[int, Message] = {}
    strangers = 0
    for reply in replies:
        node = reply.metadata.src_node_id if nameless else asked.get(reply.metadata.reply_to_message_id)
        if node is None or node not in requests or node in sorted_replies:
            strangers += 1
        else:
            sorted_replies[node] = reply
    return sorted_replies, strangers


def _passed_on(name: str) -> Any:
    return lambda self, *args, **named: getattr(self.inner, name)(*args, **named)


class PatientGrid(Grid):
    """Passes everything on to another grid, but collects replies itself."""

    push_messages, pull_messages = _passed_on("push_messages"), _passed_on("pull_messages")
    get_node_ids, set_run, create_message = map(_passed_on, ("get_node_ids", "set_run", "create_message"))
    run = property(lambda self: self.inner.run)

    def __init__(self, inner: Grid, courier: Courier) -> None:
        self.inner = inner
        self._courier = courier

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send the messages and return the replies that arrive in time."""
        sent = list(messages)
        if len(by_node(sent)) != len(sent):
            return self.inner.send_and_receive(sent, timeout=timeout)
        return list(self._courier.exchange(self.inner, by_node(sent), timeout).values())

    def __getattr__(self, name: str) -> Any:
        """Pass on what Flower's grids have beyond the interface."""
        return getattr(self.inner, name)


class Seats:
    """Which node is which user, for as long as the run lasts: given out in a plain run, proven with a roster."""

    def __init__(self, taken: Sequence[tuple[int, int]] = ()) -> None:
        self.node_of: dict[int, int] = dict(taken)
        self.user_of = {node: user for user, node in taken}

    def among(self, nodes: Collection[int]) -> dict[int, int]:
        """Return the node of each user that is one of these."""
        return {self.user_of[node]: node for node in nodes if node in self.user_of}

    def take(self, user: int, node: int, present: Collection[int]) -> None:
        """Note that a node is a user.

        A user has one node. Another one takes its place only when that node is gone, as after a restart.
        """
        holder = self.node_of.get(user, node)
        if holder != node and holder in present:
            raise UnprovenNode(node, f"user {user} of the roster is node {holder}, which is present")
        self.user_of.pop(holder, None)
        if node in self.user_of:  # A node that is enrolled anew under another number leaves its old one.
            del self.node_of[self.user_of[node]]
        self.node_of[user], self.user_of[node] = node, user


class Exchanges:
    """The nodes that are invited to a round, and what is said between both sides."""

    def __init__(self, server: Server, courier: Courier, timeout: float, seats: Seats) -> None:
        self.server, self.roster = server, server.roster
        self.courier = courier
        self.timeout = timeout
        self.seats = seats
        self.record = RoundRecord(0)
        self.invited: dict[int, Invitation] = {}
        """By node: what the wrapped strategy wants to send it."""
        self._challenge = Challenge()

    def begin(self, invitations: Sequence[Invitation], record: RoundRecord) -> None:
        """Turn to a new round."""
        self.invited = {invitation.node: invitation for invitation in invitations}
        self.record, self._challenge = record, Challenge()
        params = self.server.params
        record.cohort, record.invited, record.alpha = params.clients, len(invitations), params.shape.fraction()

    # Messages

    def message(
        self,
        stage: Stage,
        node: int,
        payload: bytes = b"",
        fields: Mapping[str, Value] | None = None,
        content: RecordDict | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Return a message to a node, and count its bytes without the model."""
        told: dict[str, Value] = {"run": self.server.params.run, **(fields or {})}
        user = self.seats.user_of.get(node)
        if self.roster is None and user is not None:
            told["user"] = user
        packet = Packet(stage, self.server.round_number, payload, fields=told)
        self.record.at(stage).received[node] += packet.codec_bytes
        return self.invited[node].message(packet, self.timeout if timeout is None else timeout, content)

    def wanted(self, user: int) -> dict[str, Value]:
        """Return what a message says of the packages that a user could have sent and has not."""
        lacking = self.server.lacking(user)
        return {"wanted": list(lacking)} if lacking else {}  # Flower can't count the bytes of an empty list.

    def challenge(self) -> dict[str, Value]:
        """Return what a message says to have a node prove who it is; nothing in a plain run."""
        return {} if self.roster is None else {"challenge": self._challenge.public}

    def for_packages(self, node: int) -> Message | None:
        """Return a small message that asks for packages only, where a node could have some to give.

        A node that is not known yet proves who it is.
        """
        following, user = self.server.round_number + 1, self.seats.user_of.get(node)
        if user is not None:
            wanted = {} if user in self.server.excluded else self.wanted(user)
            return self.message(Stage.SHARE_KEYS, node, fields=wanted) if wanted else None
        if self.roster is None:
            return None
        return self.message(Stage.SHARE_KEYS, node, fields={**self.challenge(), "wanted": [following, following + 1]})

    def talk(self, grid: Grid, stage: Stage, payloads: Mapping[int, bytes], packages: bool = False) -> None:
        """Run an exchange among users; with `packages` ask for those that are missing."""
        node_of = self.seats.among(self.invited)
        messages = {
            node_of[user]: self.message(stage, node_of[user], payload, self.wanted(user) if packages else {})
            for user, payload in payloads.items()
            if user in node_of
        }
        self.exchange(grid, stage, messages)

    def exchange(self, grid: Grid, stage: Stage, messages: Messages, answered: Answered | None = None) -> None:
        """Send messages, take the replies."""
        if not messages:
            return
        start = time.perf_counter()
        replies = self.courier.exchange(grid, messages, self.timeout)
        self.record.exchanges += 1
        self.record.at(stage).seconds += time.perf_counter() - start
        self.take(stage, messages, replies, answered)

    # Replies

    def take(self, stage: Stage, sent: Messages, replies: Messages, answered: Answered | None = None) -> None:
        """Feed the replies to the protocol; raise `MissingMod` if all of them come from apps without the mod."""
        without_mod: list[str] = []
        for node, reply in replies.items():
            try:
                if reply.has_error():
                    self._note_error(stage, node, reply, without_mod)
                elif not is_ours(reply.content):
                    without_mod.append("it sent a plain reply")
                    self.record.rejected += 1
                else:
                    self._accept(node, sent[node], reply, answered)
            except SparseSecAggError as error:
                self._reject(stage, node, str(error))
            except Exception as error:  # Whatever a node has made up: it is one dropout, and not the end of the run.
                self._reject(stage, node, type(error).__name__)
        if without_mod:
            missing = MissingMod(len(without_mod), without_mod[0])
            if len(without_mod) == len(replies):
                raise missing
            _LOG.warning("SecAgg: %s", missing)

    def _accept(self, node: int, request: Message, reply: Message, answered: Answered | None) -> None:
        """Hand one reply to the protocol; raise if it does not fit."""
        asked, packet = read_packet(request.content), read_packet(reply.content)
        if packet.round_number != asked.round_number:
            raise WrongRound(packet.round_number, asked.round_number)
        if packet.stage is not asked.stage:
            raise WrongStage(packet.stage.name, asked.stage.name)
        user = self.seats.user_of.get(node)
        if "challenge" in asked.fields and (packet.refusal is None or "proof" in packet.fields):
            user = self._proven_user(node, packet)
        if packet.refusal is not None:
            self._note_refusal(packet.stage, node, packet.refusal)
        if user is None:
            raise MalformedMessage("nobody knows which user this node is")
        with self.record.timed(packet.stage):
            for package in packet.packages:
                self.server.receive(package, sender=user)
            if packet.refusal is None and (packet.payload or packet.stage is not Stage.SHARE_KEYS):
                self.server.receive(packet.payload, sender=user)
        if answered is not None:
            answered(node, packet)
        figures = self.record.at(packet.stage)
        figures.codec[node] += packet.codec_bytes
        figures.wire[node] += wire_bytes(reply)
        if packet.packages:
            self.record.at(Stage.SHARE_KEYS).codec[node] += sum(map(len, packet.packages))

    def _proven_user(self, node: int, packet: Packet) -> int:
        """Return the user that a node proves to be, and give it its seat; raises `UnprovenNode`."""
        if self.roster is None:
            raise UnprovenNode(node, "there is no roster")
        keys = packet.payload or b"".join(packet.packages)
        claim = Claim(self.server.params.run, node, packet.int_field("user"), keys)
        self._challenge.verify(claim, self.roster, packet.bytes_field("proof"))
        self.seats.take(claim.user, node, self.invited)
        return claim.user

    def close(self) -> dict[int, bytes]:
        """End a stage of the protocol."""
        with self.record.timed(self.server.stage):
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
            # The mod does not call the train function at this stage, and yet something else ran.
            without_mod.append(f"it raised {reason}")
        _LOG.info("SecAgg: node %d dropped out at %s: %s", node, stage.name, reason)

    def _note_refusal(self, stage: Stage, node: int, reason: str) -> None:
        self.record.refusals.append(reason)
        _LOG.info("SecAgg: node %d refused at %s: %s", node, stage.name, reason)

    def _reject(self, stage: Stage, node: int, reason: str) -> None:
        self.record.rejected += 1
        _LOG.warning("SecAgg: a %s message of node %d was rejected: %s", stage.name, node, reason)
