"""Whom the wrapped strategy wants to train, and that it tells all of them the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message, RecordDict

from sparsesecagg.engines.flower.errors import EmptyCohort
from sparsesecagg.engines.flower.records import Packet
from sparsesecagg.engines.flower.terms import Terms
from sparsesecagg.errors import InvalidInput


@dataclass(frozen=True)
class Invitation:
    """What the wrapped strategy wants to send to one node."""

    node: int
    message_type: str
    content: RecordDict

    @property
    def model(self) -> ArrayRecord:
        """The model in the content."""
        return next(iter(self.content.array_records.values()))

    def message(self, packet: Packet, timeout: float | None, content: RecordDict | None = None) -> Message:
        """Return a message to the node that carries a packet, and the strategy's own content where given."""
        # A message outlives its stage, so that the courier knows the node for busy as long as it may be.
        ttl = None if timeout is None else max(60.0, 3 * timeout)
        # Strategies share one content among all messages, so it is copied.
        records = {**(content or {}), **packet.records()}
        return Message(RecordDict(records), self.node, self.message_type, ttl=ttl, group_id=str(packet.round_number))


def invite(messages: Sequence[Message]) -> list[Invitation]:
    """Return whom the wrapped strategy wants to train, in the order of their ids."""
    if not messages:
        raise EmptyCohort
    invitations = sorted(
        (Invitation(m.metadata.dst_node_id, m.metadata.message_type, m.content) for m in messages),
        key=lambda invitation: invitation.node,
    )
    if len({invitation.node for invitation in invitations}) != len(invitations):
        raise InvalidInput("strategy", "must send each node one message, and sends some node two")
    if any(len(invitation.content.array_records) != 1 for invitation in invitations):
        raise InvalidInput("strategy", "must send one ArrayRecord in each message: the model")
    return invitations


def common_digest(terms: Terms, invitations: Sequence[Invitation]) -> bytes:
    """Return the digest of what all nodes are sent; refuse a strategy that sends them different things."""
    contents = {id(invitation.content): invitation.content for invitation in invitations}
    models: dict[int, bytes] = {}
    digests = {terms.digest(content, models) for content in contents.values()}
    if len(digests) != 1:
        raise InvalidInput(
            "strategy",
            "must send all nodes the same model and configuration: clients refuse a round in which they differ",
        )
    return digests.pop()
