"""The server's side of a run: the protocol's `Server`, fed through Flower.

A run begins with an exchange of keys among the nodes that were chosen then, or the users of a roster. After that every
round has two exchanges, UPLOAD and UNMASK: key packages of later rounds ride on UPLOAD's replies. Whatever a reply
holds, it is either taken or rejected, and never ends the round for the others.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from flwr.app import Message, RecordDict

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import MalformedMessage, ProtocolError, SparseSecAggError, WrongRound, WrongStage
from sparsesecagg.flower import messages
from sparsesecagg.flower.downlink import Downlink
from sparsesecagg.flower.errors import MissingMod, UnprovenNode
from sparsesecagg.flower.figures import RoundRecord
from sparsesecagg.flower.messages import RAISED, Invitation, Packet, Terms, in_one_line, read_packet, wire_bytes
from sparsesecagg.flower.node import Challenge, Claim
from sparsesecagg.flower.transport import Messages, PatientGrid, Seats, by_request
from sparsesecagg.protocol import Result, Server, Stage
from sparsesecagg.protocol.combine import Combine
from sparsesecagg.protocol.messages import Round
from sparsesecagg.protocol.stages import ROUND_STAGES

_LOG = logging.getLogger("flwr")
VIABLE = 0.5
"""A run goes on as long as this part of its groups can be opened, and this part of the chosen nodes are in it."""
Request = tuple[Packet, Message]
Requests = Mapping[int, Request]
"""By node: what it is asked, and the message that asks it."""
_LARGEST_CLAIM = 1 << 40
_Saved = tuple[bytes, Round, list[tuple[int, int]]]
"""The server, the last round that was begun, the seats."""


class SecureRun:
    """One run of the protocol among nodes of Flower."""

    def __init__(
        self, server: Server, timeout: float, downlink: Downlink, seats: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Take the protocol's server, at the start of an epoch or restored, and which user is which node if known."""
        self.server, self.params, self.roster = server, server.params, server.roster
        self.app = b""
        """What most nodes say the run's number and configuration are, as a digest: the context is bound to it."""
        self._timeout, self._downlink = timeout, downlink
        self._seats = Seats(seats)
        self._turn_to(Invitation((), "", RecordDict()), RoundRecord(0))
        self._sent: Requests = {}
        """UPLOAD's."""
        self._uploading = 0.0

    @property
    def seed(self) -> bytes:
        """The public seed of the epoch's groups and slices."""
        return self.params.epoch_seed(self.server.epoch_number, self.roster)

    @property
    def excluded_nodes(self) -> set[int]:
        """The nodes whose users get no more rounds."""
        return {node for user, node in self._seats.node_of.items() if user in self.server.excluded}

    def save(self) -> bytes:
        """Return the run as bytes, before the headers of its next round leave."""
        begun = self.server.round_number + 1  # The round whose headers are leaving: its number is used up.
        return msgspec.msgpack.encode((self.server.save(), begun, sorted(self._seats.node_of.items())))

    @staticmethod
    def restore(data: bytes, timeout: float, downlink: Downlink, roster: Roster | None, combine: Combine) -> SecureRun:
        """Return the run that `save` wrote down, at the round after the last one that was begun."""
        try:
            saved, begun, seats = msgspec.msgpack.decode(data, type=_Saved)
        except ValueError:  # msgspec's errors are ValueErrors.
            raise MalformedMessage("the bytes are not a saved run") from None
        server = Server.restore(saved, roster, combine=combine)
        server.catch_up(begun)
        return SecureRun(server, timeout, downlink, seats)

    # Before a round

    def set_up(self, grid: PatientGrid, invitation: Invitation, record: RoundRecord) -> None:
        """Exchange keys, and take the packages of the first rounds."""
        self._turn_to(invitation, record)
        if self.roster is None:
            # Without a roster a node is told its number; with one, it says and proves it.
            for user, node in enumerate(invitation.nodes):
                self._seats.take(user, node, ())
        record.stage = Stage.ADVERTISE_KEYS
        seen = self._advertise_keys(grid)
        if seen >= self.server.epoch_number:  # As after a restart without a run folder.
            record.refusals.clear()  # They told what we asked.
            self.server.begin_epoch(seen + 1)
            self._advertise_keys(grid)
        outbound = self._close()
        record.stage = Stage.SHARE_KEYS
        self._talk(grid, Stage.SHARE_KEYS, outbound)

    def ready(self, grid: PatientGrid, invitation: Invitation, record: RoundRecord) -> bool:
        """Return whether the next round can be played by these nodes; ask for packages that are missing, if need be.

        Without a roster a node that was not there when keys were exchanged begins a new epoch: strategies sample nodes,
        and whoever is chosen should be in the sum.
        """
        self._turn_to(invitation, record)
        seated = self._seats.among(invitation.nodes)
        if self.roster is None and len(seated) < len(invitation.nodes):
            return False
        if not self.app:  # Restored, and Flower's run is another one now.
            asked = {n: self._request(Stage.SHARE_KEYS, n, fields=self._wanted(user)) for user, n in seated.items()}
            self._learn_app(self._exchange(grid, Stage.SHARE_KEYS, asked))
        if not self._viable():
            found = {node: self._for_packages(node) for node in invitation.nodes}
            self._exchange(grid, Stage.SHARE_KEYS, {node: each for node, each in found.items() if each is not None})
        return self._viable()

    def _turn_to(self, invitation: Invitation, record: RoundRecord) -> None:
        self._invitation, self._record, self._challenge = invitation, record, Challenge()
        self._challenged: dict[str, Any] = {"challenge": self._challenge.public} if self.roster else {}
        record.cohort, record.invited = self.params.clients, len(invitation.nodes)
        record.alpha = self.params.shape.fraction()

    def _viable(self) -> bool:
        """Return whether enough of the invited nodes have sent packages, for the groups and among those chosen."""
        invited = self._invitation.nodes
        users = self.server.shared(self.server.round_number + 1).intersection(self._seats.among(invited))
        groups = self.server.groups.groups
        openable = [len(users.intersection(group.users.tolist())) >= self.params.quorum for group in groups]
        return len(users) >= VIABLE * len(invited) and sum(openable) >= VIABLE * len(openable)

    def _advertise_keys(self, grid: PatientGrid) -> int:
        """Ask for keys; return the last epoch that nodes have seen."""
        fields = {"params": self.params.encode(), "epoch": self.server.epoch_number, **self._challenged}
        asked = {node: self._request(Stage.ADVERTISE_KEYS, node, fields=fields) for node in self._invitation.nodes}
        answers = self._exchange(grid, Stage.ADVERTISE_KEYS, asked)
        self._learn_app(answers)
        if self.roster is None:
            return 0  # A new session is a new run: nobody has seen anything of it.
        self.server.catch_up(self._seen(answers, "last_round"))
        return self._seen(answers, "last_epoch")

    def _seen(self, answers: Mapping[int, Packet], name: str) -> int:
        """Return a number beyond what colluding users could make up: somebody honest has seen at least that much."""
        told = [getattr(packet, name) or 0 for packet in answers.values()]
        numbers = sorted((number for number in told if number <= _LARGEST_CLAIM), reverse=True)
        return (numbers[self.params.colluders :] or [0])[0]

    def _learn_app(self, answers: Mapping[int, Packet]) -> None:
        """Take what most nodes say the run's number and configuration are."""
        told = [packet.app for packet in answers.values() if packet.app]
        self.app = Counter(told).most_common(1)[0][0] if told else b""

    # A round

    def begin_round(self, invitation: Invitation, terms: Terms, timeout: float) -> dict[int, Message]:
        """Return the UPLOAD messages; nodes that have no package for this round are asked for those of later ones."""
        while self.server.stage in ROUND_STAGES:  # One that nobody has finished, as when a strategy around us failed.
            with suppress(ProtocolError):
                self.server.close_stage()
        record, self._invitation = self._record, invitation
        record.stage = Stage.UPLOAD
        context = terms.digest(invitation.content, invitation.message_type, self.app)
        headers = self.server.begin_round(context=context)
        record.protocol_round = self.server.round_number
        requests: dict[int, Request] = {}
        for node in invitation.nodes:
            user = self._seats.user_of.get(node)
            if user is not None and user in headers:
                content, more, size = self._downlink.message_for(node, invitation.content)
                told = {**terms.entries(), **more, **self._wanted(user)}
                requests[node] = self._request(Stage.UPLOAD, node, headers[user], told, content, timeout)
                record.model_bytes[node] += size
            elif (asking := self._for_packages(node)) is not None:
                requests[node] = asking
        self._sent, self._uploading = requests, time.perf_counter()
        return _messages(requests)

    def finish_round(self, grid: PatientGrid, replies: Iterable[Message]) -> Result:
        """Add the uploads that arrived, run UNMASK, return the outcome."""
        record = self._record
        record.exchanges += 1
        record.at(Stage.UPLOAD).seconds = time.perf_counter() - self._uploading
        heard, strangers = by_request(_messages(self._sent), replies)
        record.rejected += strangers
        taken = self.take(Stage.UPLOAD, self._sent, heard)
        for node in heard:
            if self._sent[node][0].stage is Stage.UPLOAD:
                fine = node in taken and taken[node].refused is None
                self._downlink.acknowledge(node, taken[node].held if fine else None)
        requests = self._close()
        record.stage = Stage.UNMASK
        self._talk(grid, Stage.UNMASK, requests)
        self._close()
        result = self.server.result
        if result is None:
            raise WrongStage(Stage.UNMASK.name, self.server.stage.name)
        record.complete(result)
        for user, reason in result.excluded.items():
            seat = self._seats.node_of.get(user)
            _LOG.warning("SecAgg: node %s (user %d) gets no more rounds: %s", seat, user, reason)
        return result

    def _close(self) -> dict[int, bytes]:
        """End a stage of the protocol."""
        with self._record.timed(self.server.stage):
            try:
                return self.server.close_stage()
            finally:
                self._record.dropped |= self.server.dropped

    # Messages

    def _request(
        self,
        stage: Stage,
        node: int,
        payload: bytes = b"",
        fields: Mapping[str, Any] | None = None,
        content: RecordDict | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Return a message to a node, and count its bytes without the model."""
        told: dict[str, Any] = {"run": self.params.run, **(fields or {})}
        user = self._seats.user_of.get(node)
        if self.roster is None and user is not None:
            told["user"] = user
        packet = Packet(stage, self.server.round_number, payload, **told)
        self._record.at(stage).received[node] += packet.codec_bytes
        return packet, self._invitation.message(node, packet, timeout or self._timeout, content)

    def _wanted(self, user: int) -> dict[str, Any]:
        """Return what a message says of the packages that a user could have sent and has not."""
        lacking = self.server.lacking(user)
        return {"wanted": list(lacking)} if lacking else {}

    def _for_packages(self, node: int) -> Request | None:
        """Return a message that asks for packages only, if a node can have any; an unknown one proves who it is."""
        following, user = self.server.round_number + 1, self._seats.user_of.get(node)
        if user is None:
            fields = {**self._challenged, "wanted": [following, following + 1]} if self.roster else {}
        else:
            fields = {} if user in self.server.excluded else self._wanted(user)
        return self._request(Stage.SHARE_KEYS, node, fields=fields) if fields else None

    def _talk(self, grid: PatientGrid, stage: Stage, payloads: Mapping[int, bytes]) -> None:
        """Run an exchange among users; at SHARE_KEYS ask for the packages that are missing."""
        seated = self._seats.among(self._invitation.nodes)
        requests: dict[int, Request] = {}
        for user, node in seated.items():
            if user in payloads:
                wanted = self._wanted(user) if stage is Stage.SHARE_KEYS else {}
                requests[node] = self._request(stage, node, payloads[user], wanted)
        self._exchange(grid, stage, requests)

    def _exchange(self, grid: PatientGrid, stage: Stage, requests: Requests) -> dict[int, Packet]:
        """Send messages, take the replies."""
        if not requests:
            return {}
        start = time.perf_counter()
        replies = grid.exchange(_messages(requests), self._timeout)
        self._record.exchanges += 1
        self._record.at(stage).seconds += time.perf_counter() - start
        return self.take(stage, requests, replies)

    # Replies

    def take(self, stage: Stage, requests: Requests, replies: Messages) -> dict[int, Packet]:
        """Feed the replies to the protocol; return those that it took. Raises `MissingMod` if no app has the mod."""
        taken, without_mod = dict[int, Packet](), list[str]()
        for node, reply in replies.items():
            try:
                if reply.has_error():
                    reason, refused = messages.reason_of(reply), messages.is_refusal(reply)
                    self._note(stage, node, reason, refused)
                    if stage is Stage.ADVERTISE_KEYS and reply.error.code == RAISED:
                        # The mod does not call the train function at this stage, and yet something else ran.
                        without_mod.append(f"it raised {reason}")
                elif not messages.is_ours(reply.content):
                    without_mod.append("it sent a plain reply")
                    self._record.rejected += 1
                else:
                    taken[node] = self._accept(node, requests[node][0], reply)
            except Exception as error:  # Whatever a node has made up: it is one dropout, and not the end of the run.
                self._record.rejected += 1
                reason = str(error) if isinstance(error, SparseSecAggError) else type(error).__name__
                _LOG.warning("SecAgg: a %s message of node %d was rejected: %s", stage.name, node, reason)
        if without_mod:
            missing = MissingMod(len(without_mod), without_mod[0])
            if len(without_mod) == len(replies):
                raise missing
            _LOG.warning("SecAgg: %s", missing)
        return taken

    def _accept(self, node: int, asked: Packet, reply: Message) -> Packet:
        """Hand one reply to the protocol; raise if it does not fit."""
        packet = read_packet(reply.content)
        if packet.round_number != asked.round_number:
            raise WrongRound(packet.round_number, asked.round_number)
        if packet.stage is not asked.stage:
            raise WrongStage(packet.stage.name, asked.stage.name)
        user = self._seats.user_of.get(node)
        if asked.challenge and (packet.refused is None or packet.proof):
            user = self._proven_user(node, packet)
        if packet.refused is not None:
            self._note(packet.stage, node, in_one_line(packet.refused), refused=True)
        if user is None:
            raise MalformedMessage(f"node {node} has not been assigned a user number")
        with self._record.timed(packet.stage):
            for package in packet.packages:
                self.server.receive(user, package)
            if packet.refused is None and (packet.payload or packet.stage is not Stage.SHARE_KEYS):
                self.server.receive(user, packet.payload)
        figures = self._record.at(packet.stage)
        figures.codec[node] += packet.codec_bytes
        figures.wire[node] += wire_bytes(reply)
        if packet.packages:
            self._record.at(Stage.SHARE_KEYS).codec[node] += sum(map(len, packet.packages))
        return packet

    def _proven_user(self, node: int, packet: Packet) -> int:
        """Return the user that a node proves to be, and give it its seat; raises `UnprovenNode`."""
        if self.roster is None:
            raise UnprovenNode(node, "there is no roster")
        claim = Claim(self.params.run, node, packet.need("user"), packet.payload or b"".join(packet.packages))
        self._challenge.verify(claim, self.roster, packet.need("proof"))
        self._seats.take(claim.user, node, self._invitation.nodes)
        return claim.user

    def _note(self, stage: Stage, node: int, reason: str, refused: bool) -> None:
        if refused:
            self._record.refusals[node] = reason
        _LOG.info("SecAgg: node %d %s at %s: %s", node, "refused" if refused else "dropped out", stage.name, reason)


def _messages(requests: Requests) -> dict[int, Message]:
    return {node: message for node, (_, message) in requests.items()}
