"""The server's side of a run: the protocol's `Server`, fed through Flower.

A run begins with an exchange of keys among the nodes that were chosen then, or the users of a roster. After that every
round has two exchanges, UPLOAD and UNMASK: key packages of later rounds ride on UPLOAD's replies.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec
from flwr.app import Message
from flwr.serverapp import Grid

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import ProtocolError, WrongStage
from sparsesecagg.flower.context import Invitation, Terms, common_digest
from sparsesecagg.flower.downlink import HELD, Downlink
from sparsesecagg.flower.exchanges import Courier, Exchanges, Seats, by_request
from sparsesecagg.flower.figures import RoundRecord
from sparsesecagg.flower.records import Packet, Value
from sparsesecagg.protocol import Parameters, Result, Server, Stage
from sparsesecagg.protocol.combine import Combiner, Sum
from sparsesecagg.protocol.stages import ROUND_STAGES

_LOG = logging.getLogger("flwr")
VIABLE = 0.5
"""A run goes on as long as this part of its groups can be opened, and this part of the chosen nodes are in it."""
Combine = Callable[[Parameters], Combiner]
"""Makes what a round's sums are combined with."""
_LARGEST_CLAIM = 1 << 40


class RunState(msgspec.Struct, frozen=True, array_like=True):
    """A run between rounds, as bytes."""

    server: bytes
    begun: int
    """The round whose headers are leaving: its number is used up."""
    seats: list[tuple[int, int]]


class SecureRun:
    """One run of the protocol among nodes of Flower."""

    def __init__(
        self, server: Server, courier: Courier, timeout: float, downlink: Downlink, state: RunState | None = None
    ) -> None:
        """Take the protocol's server, at the start of an epoch, or restored with the rest of its `state`."""
        self.server = server
        self.app = b""
        """What most nodes say the run's number and configuration are, as a digest: the context is bound to it."""
        self._nodes = Exchanges(server, courier, timeout, Seats(state.seats if state else ()))
        self._downlink = downlink
        self._sent: dict[int, Message] = {}
        """By node: its message at UPLOAD."""
        self._uploading = 0.0
        if state:
            server.catch_up(state.begun)

    @property
    def params(self) -> Parameters:
        """The parameters of the run."""
        return self.server.params

    @property
    def seed(self) -> bytes:
        """The public seed of the epoch's groups and slices."""
        return self.params.epoch_seed(self.server.epoch_number, self._nodes.roster)

    @property
    def excluded_nodes(self) -> set[int]:
        """The nodes whose users get no more rounds."""
        return {node for user, node in self._nodes.seats.node_of.items() if user in self.server.excluded}

    def save(self) -> bytes:
        """Return the run as bytes, before the headers of its next round leave."""
        begun = self.server.round_number + 1
        return msgspec.msgpack.encode(RunState(self.server.save(), begun, sorted(self._nodes.seats.node_of.items())))

    @staticmethod
    def restore(
        data: bytes, courier: Courier, timeout: float, downlink: Downlink, roster: Roster | None, combine: Combine = Sum
    ) -> SecureRun:
        """Return the run that `save` wrote down, at the round after the last one that was begun."""
        state = msgspec.msgpack.decode(data, type=RunState)
        server = Server.restore(state.server, roster, combine=combine)
        return SecureRun(server, courier, timeout, downlink, state)

    # Before the first round

    def set_up(self, grid: Grid, invitations: Sequence[Invitation], record: RoundRecord) -> None:
        """Exchange keys, and take the packages of the first rounds."""
        nodes = self._nodes
        nodes.begin(invitations, record)
        if nodes.roster is None:
            # Without a roster a node is told its number; with one, it says and proves it.
            for user, node in enumerate(nodes.invited):
                nodes.seats.take(user, node, ())
        with record.failures_at(Stage.ADVERTISE_KEYS):
            seen = self._advertise_keys(grid)
            if seen >= self.server.epoch_number:  # As after a restart without a run folder.
                self.server.begin_epoch(seen + 1)
                self._advertise_keys(grid)
            outbound = nodes.close()
        with record.failures_at(Stage.SHARE_KEYS):
            nodes.talk(grid, Stage.SHARE_KEYS, outbound, packages=True)

    def _advertise_keys(self, grid: Grid) -> int:
        """Ask for keys; return the last epoch that nodes have seen."""
        nodes, answers = self._nodes, dict[int, Packet]()
        fields = {"params": self.params.encode(), "epoch": self.server.epoch_number, **nodes.challenge()}
        messages = {node: nodes.message(Stage.ADVERTISE_KEYS, node, fields=fields) for node in nodes.invited}
        nodes.exchange(grid, Stage.ADVERTISE_KEYS, messages, answers.__setitem__)
        self._learn_app(answers)
        if nodes.roster is None:
            return 0  # A new session is a new run: nobody has seen anything of it.
        # Beyond what colluding users could make up: somebody honest has seen at least that much.
        rounds, epochs = (
            sorted((_number(packet, name) for packet in answers.values()), reverse=True)[self.params.accusers :][:1]
            for name in ("last-round", "last-epoch")
        )
        self.server.catch_up(rounds[0] if rounds else 0)
        return epochs[0] if epochs else 0

    def _learn_app(self, answers: Mapping[int, Packet]) -> None:
        """Take what most nodes say the run's number and configuration are."""
        told = [packet.fields.get("app") for packet in answers.values()]
        usual = Counter(each for each in told if isinstance(each, bytes)).most_common(1)
        self.app = usual[0][0] if usual else b""

    # Who is in it

    def ready(self, grid: Grid, invitations: Sequence[Invitation], record: RoundRecord) -> bool:
        """Return whether the next round can be played by these nodes; ask for packages that are missing, if need be.

        Without a roster a node that was not there when keys were exchanged begins a new epoch: strategies sample nodes,
        and whoever is chosen should be in the sum.
        """
        nodes = self._nodes
        nodes.begin(invitations, record)
        if nodes.roster is None and any(nodes.seats.user_of.get(node) is None for node in nodes.invited):
            return False
        if not self.app:  # Restored, and Flower's run is another one now.
            answers: dict[int, Packet] = {}
            known = {node: nodes.seats.user_of.get(node) for node in nodes.invited}
            messages = {
                node: nodes.message(Stage.SHARE_KEYS, node, fields=nodes.wanted(user))
                for node, user in known.items()
                if user is not None
            }
            nodes.exchange(grid, Stage.SHARE_KEYS, messages, answers.__setitem__)
            self._learn_app(answers)
        if not self._viable():
            asked = {node: message for node in nodes.invited if (message := nodes.for_packages(node)) is not None}
            nodes.exchange(grid, Stage.SHARE_KEYS, asked)
        return self._viable()

    def _viable(self) -> bool:
        """Return whether enough of the invited nodes have sent packages, for the groups and among those chosen."""
        invited = self._nodes.invited
        users = self.server.shared(self.server.round_number + 1).intersection(self._nodes.seats.among(invited))
        groups = self.server.groups.groups
        openable = [len(users.intersection(group.users.tolist())) >= self.params.quorum for group in groups]
        return len(users) >= VIABLE * len(invited) and sum(openable) >= VIABLE * len(openable)

    # A round

    def begin_round(self, invitations: Sequence[Invitation], terms: Terms, timeout: float) -> list[Message]:
        """Return the UPLOAD messages; nodes that have no package for this round are asked for those of later ones."""
        self._abandon()
        nodes, context = self._nodes, common_digest(terms, invitations, self.app)
        nodes.invited = {invitation.node: invitation for invitation in invitations}
        with nodes.record.failures_at(Stage.UPLOAD):
            headers = self.server.begin_round(context=context)
            nodes.record.protocol_round = self.server.round_number
            self._sent = {}
            for node, invitation in nodes.invited.items():
                user = nodes.seats.user_of.get(node)
                if user is not None and user in headers:
                    content, more, size = self._downlink.message_for(node, invitation.content)
                    told: dict[str, Value] = {**terms.fields(), **more, **nodes.wanted(user)}
                    self._sent[node] = nodes.message(Stage.UPLOAD, node, headers[user], told, content, timeout)
                    nodes.record.model_bytes[node] += size
                elif (asking := nodes.for_packages(node)) is not None:
                    self._sent[node] = asking
        self._uploading = time.perf_counter()
        return list(self._sent.values())

    def finish_round(self, grid: Grid, replies: Iterable[Message]) -> Result:
        """Add the uploads that arrived, run UNMASK, return the outcome."""
        nodes = self._nodes
        with nodes.record.failures_at(Stage.UPLOAD):
            nodes.record.exchanges += 1
            nodes.record.at(Stage.UPLOAD).seconds = time.perf_counter() - self._uploading
            sorted_replies, strangers = by_request(self._sent, replies)
            nodes.record.rejected += strangers
            for node, reply in sorted_replies.items():
                if reply.has_error():
                    self._downlink.lost(node)
            nodes.take(Stage.UPLOAD, self._sent, sorted_replies, self._note_model)
            requests = nodes.close()
        with nodes.record.failures_at(Stage.UNMASK):
            nodes.talk(grid, Stage.UNMASK, requests)
            nodes.close()
        result = self.server.result
        if result is None:
            raise WrongStage(Stage.UNMASK.name, self.server.stage.name)
        nodes.record.complete(result)
        for user, reason in result.excluded.items():
            seat = nodes.seats.node_of.get(user)
            _LOG.warning("SecAgg: node %s (user %d) gets no more rounds: %s", seat, user, reason)
        return result

    def _note_model(self, node: int, packet: Packet) -> None:
        if packet.stage is Stage.UPLOAD:
            if packet.refusal is None:
                self._downlink.acknowledge(node, packet.fields.get(HELD))
            else:
                self._downlink.lost(node)

    def _abandon(self) -> None:
        """End a round that nobody has finished, as when another strategy around this one has failed."""
        while self.server.stage in ROUND_STAGES:
            with suppress(ProtocolError):
                self.server.close_stage()


def _number(packet: Packet, name: str) -> int:
    value = packet.fields.get(name)
    return value if isinstance(value, int) and 0 <= value <= _LARGEST_CLAIM else 0
