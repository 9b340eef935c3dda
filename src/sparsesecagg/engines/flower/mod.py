"""The client's side: a mod around the ClientApp's train function.

Every stage arrives as a train message with a control record. Only UPLOAD reaches the train function, which sees the
message that the wrapped strategy made and answers as it always does; its arrays, weight and metrics never leave the
node in the clear. Errors of ours travel as refusals with a text that holds no secret; what the train function raises
is passed on as it is.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from math import isfinite

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict

from sparsesecagg.engines.flower.arrays import Template, Update
from sparsesecagg.engines.flower.errors import MissingStrategy
from sparsesecagg.engines.flower.identity import ROSTER, RUN_KEY, enrolment_of
from sparsesecagg.engines.flower.keys import KeySeed
from sparsesecagg.engines.flower.policy import policy_of
from sparsesecagg.engines.flower.records import Packet, Value, is_ours, read_packet, refusal, without_ours
from sparsesecagg.engines.flower.seats import Claim, prove
from sparsesecagg.engines.flower.state import NodeState
from sparsesecagg.engines.flower.terms import Terms
from sparsesecagg.errors import (
    InvalidInput,
    MalformedMessage,
    PolicyViolation,
    ProtocolError,
    SparseSecAggError,
    WrongRound,
    WrongStage,
)
from sparsesecagg.protocol import Client, RoundParameters, Stage

_LOG = logging.getLogger("flwr")

Train = Callable[[Message, Context], Message]
Record = ArrayRecord | MetricRecord | ConfigRecord


class _InternalError(ProtocolError):
    """A fault of this package; its text stays on the node."""


class _TrainingError(Exception):
    """Carries what the train function did instead of returning a model past our own handlers."""

    def __init__(self, reply: Message | None = None) -> None:
        self.reply = reply
        super().__init__()


def secagg_mod(message: Message, context: Context, call_next: Train) -> Message:
    """Take part in secure aggregation: `@app.train(mods=[secagg_mod])`.

    Put it first if there are other mods. Messages other than train messages pass untouched; a train message of a server
    without `SecAgg` is refused, because answering it would send the model in the clear.
    """
    if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
        return call_next(message, context)
    try:
        if not is_ours(message.content):
            raise MissingStrategy
        return _answer(message, context, call_next)
    except _TrainingError as stopped:
        if stopped.reply is not None:
            return stopped.reply
        assert stopped.__cause__ is not None  # noqa: S101  # Raised from what the train function raised.
        raise stopped.__cause__ from None
    except SparseSecAggError as error:
        _LOG.error("secagg_mod: %s: %s", type(error).__name__, error)
        return refusal(message, error)
    except Exception as error:
        # The text of an unforeseen error could hold anything; the server gets its kind.
        _LOG.exception("secagg_mod failed")
        return refusal(message, _InternalError(f"the mod failed with {type(error).__name__}; see the log of the node"))


def _answer(message: Message, context: Context, call_next: Train) -> Message:
    """Act on one stage's message and keep the state."""
    packet = read_packet(message.content)
    state, start = NodeState.load(context), time.perf_counter()
    trained_for = 0.0
    fields: dict[str, Value] = {}
    match packet.stage:
        case Stage.ADVERTISE_KEYS:
            payload, fields = _advertise_keys(packet, context, state)
        case Stage.SHARE_KEYS:
            payload = _share_keys(packet, context, state)
        case Stage.UPLOAD:
            payload, trained_for = _upload(packet, message, context, state, call_next)
        case Stage.CONFIRM:
            payload = _confirm(packet, context, state)
        case Stage.UNMASK:
            payload = _unmask(packet, context, state)
            state.seed = KeySeed.draw()
            fields["keys"] = state.seed.announcement()
        case _:
            raise WrongStage(packet.stage.name, "a round that goes on")
    state.store(context)
    # What the protocol cost, without training: how long a node trains is nobody's business.
    fields["seconds"] = time.perf_counter() - start - trained_for
    reply = Packet(packet.stage, packet.round_number, payload, fields)
    return Message(RecordDict(reply.records()), reply_to=message)


def _advertise_keys(packet: Packet, context: Context, state: NodeState) -> tuple[bytes, dict[str, Value]]:
    """Return fresh keys; in an authenticated round, also which user of the roster this is, and the proof."""
    params, policy = _parameters(packet), policy_of(context)
    policy.check_parameters(params)
    state.seed = KeySeed.draw()
    if not params.authenticated:
        _, advertisement = state.seed.client(packet.int_field("user"), params, policy)
        return advertisement, {}
    enrolment = enrolment_of(context)
    if enrolment is None:
        raise PolicyViolation(f"the round is authenticated, and this node has no {ROSTER} and {RUN_KEY}")
    # The number is the node's own to say: it stands in the roster that its owner trusts.
    user = enrolment.identity.user
    _, advertisement = state.seed.client(user, params, policy, enrolment.identity)
    claim = Claim(params, context.node_id, user, advertisement)
    proof = prove(claim, enrolment.run_key, packet.bytes_field("challenge"))
    return advertisement, {"user": user, "proof": proof}


def _share_keys(packet: Packet, context: Context, state: NodeState) -> bytes:
    params, policy = _parameters(packet), policy_of(context)
    policy.check_parameters(params)  # Before the keys are spent: a round that is refused costs nothing.
    enrolment = enrolment_of(context)
    identity = enrolment.identity if enrolment else None
    client, _ = state.take_seed().client(packet.int_field("user"), params, policy, identity)
    state.end()
    state.store(context)  # From here on the keys are spent, whatever happens.
    payload = client.share_keys(packet.payload)
    state.begin(client)
    return payload


def _upload(
    packet: Packet, message: Message, context: Context, state: NodeState, call_next: Train
) -> tuple[bytes, float]:
    """Train, then mask; return the upload and the seconds that training took."""
    client = _resume(packet, context, state)
    if client.stage is not Stage.UPLOAD:
        raise WrongStage(packet.stage.name, client.stage.name)
    content, terms = without_ours(message.content), Terms.read(packet)
    if terms.digest(content) != client.params.model_digest:
        raise PolicyViolation("the model or the terms are not those that this round's parameters name")
    received = _only_arrays(content, "message")
    template = Template.of(received)
    # The train function gets a message of its own, whose arrays it may clear; the difference is still to be made.
    own = copy.copy(message)
    own.content = RecordDict({name: _copy(record) for name, record in content.items()})

    start = time.perf_counter()
    reply = _train(own, context, call_next)
    trained_for = time.perf_counter() - start

    metrics = next(iter(reply.content.metric_records.values()), MetricRecord())
    weight = _weight(metrics, terms.weight_key, client.params.max_weight)
    if weight * client.params.selection_probability > client.policy.max_exposure:
        raise PolicyViolation("α times the weight of this node is beyond the exposure that its policy allows")
    if len(terms.scales) != len(template.travelling):
        raise MalformedMessage(f"{len(template.travelling)} arrays need a scale each, not {len(terms.scales)}")
    trained, extra = _only_arrays(reply.content, "reply"), _metrics(metrics, terms)
    update = Update.between(template, received, trained, terms.scales, extra)
    payload = client.upload(packet.payload, update, weight)
    state.begin(client)
    return payload, trained_for


def _confirm(packet: Packet, context: Context, state: NodeState) -> bytes:
    client = _resume(packet, context, state)
    payload = client.confirm(packet.payload)
    state.begin(client)
    return payload


def _unmask(packet: Packet, context: Context, state: NodeState) -> bytes:
    client = _resume(packet, context, state)
    payload = client.unmask(packet.payload)
    state.end()
    return payload


def _resume(packet: Packet, context: Context, state: NodeState) -> Client:
    """Return the client of the round under way, under the policy and the identity that the node has now."""
    policy, enrolment = policy_of(context), enrolment_of(context)
    return state.resume(packet.round_number, policy, enrolment.identity if enrolment else None)


def _train(message: Message, context: Context, call_next: Train) -> Message:
    try:
        reply = call_next(message, context)
    except Exception as error:
        raise _TrainingError from error
    if reply.has_error():
        raise _TrainingError(reply)
    return reply


def _parameters(packet: Packet) -> RoundParameters:
    params = RoundParameters.decode(packet.bytes_field("params"))
    if params.round_number != packet.round_number:
        raise WrongRound(packet.round_number, params.round_number)
    return params


def _only_arrays(content: RecordDict, where: str) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise InvalidInput("arrays", f"must be the one ArrayRecord of the {where}, which has {len(records)}")
    return records[0]


def _copy(record: Record) -> Record:
    return ArrayRecord(dict(record)) if isinstance(record, ArrayRecord) else record


def _weight(metrics: MetricRecord, key: str, largest: int) -> int:
    """Return the private weight; its value never enters an error's text."""
    if not largest:
        return 1
    value = metrics.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value != int(value):
        raise InvalidInput(key, "must be in the metrics of the reply, as a whole number: it is the weight of this node")
    if not 0 <= value <= largest:
        raise InvalidInput(key, f"must be from 0 to max_weight = {largest}: raise max_weight of SecAgg on the server")
    return int(value)


def _metrics(metrics: MetricRecord, terms: Terms) -> list[float]:
    """Return the metrics that are to be averaged, each in units of its bound."""
    values = []
    for name, bound in terms.metrics.items():
        value = metrics.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise InvalidInput(name, "must be in the metrics of the reply, as one finite number")
        values.append(value / bound)
    return values
