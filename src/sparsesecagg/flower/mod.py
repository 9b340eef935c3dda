"""The node's side: a mod around the ClientApp's train function.

Every stage arrives as a train message with a control record. Only UPLOAD reaches the train function, which sees the
message that the wrapped strategy made and answers as it always does; its arrays, weight and metrics never leave the
node in the clear. What the node has answered, and its secrets, are in its ledger and not in Flower's context: of two
tasks that run at the same time one is answered, and a context that is copied or put back changes nothing. Errors of
ours travel as refusals with a text that holds no secret; what the train function raises is passed on as it is.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord, RecordDict

from sparsesecagg.flower.arrays import ModelUpdate, Template
from sparsesecagg.flower.errors import MissingStrategy, NotInRun
from sparsesecagg.flower.node import (
    EVALUATION,
    ROSTER,
    RUN_KEY,
    Claim,
    Enrolment,
    coin,
    enrolment_of,
    evaluation_allowed,
    ledger_folder,
    policy_of,
    prove,
    rounded,
)
from sparsesecagg.flower.records import (
    Packet,
    Terms,
    Value,
    is_ours,
    read_packet,
    refusal,
    run_config_digest,
    without_ours,
)
from sparsesecagg.flower.way_down import HELD, Replicas
from sparsesecagg.errors import (
    InvalidInput,
    MalformedMessage,
    PolicyViolation,
    ProtocolError,
    SparseSecAggError,
    WrongStage,
)
from sparsesecagg.protocol import Client, Parameters, Policy, SqliteLedger, Stage
from sparsesecagg.protocol.messages import decode_client_message

_LOG = logging.getLogger("flwr")

Train = Callable[[Message, Context], Message]
"""A function of the ClientApp."""


class _InternalError(ProtocolError):
    """A fault of this package; its text stays on the node."""


class _TrainingError(Exception):
    """Carries what the train function did instead of returning a model past our own handlers."""

    def __init__(self, reply: Message | None = None) -> None:
        self.reply = reply
        super().__init__()


def secagg_mod(message: Message, context: Context, call_next: Train) -> Message:
    """Take part in secure aggregation: `@app.train(mods=[secagg_mod])`.

    Put it first if there are other mods. A train message of a server without `SecAgg` is refused, because answering it
    would send the model in the clear. Other messages pass untouched; around the evaluate function the mod refuses where
    the node's owner has forbidden evaluation.
    """
    kind = message.metadata.message_type.split(".")[0]
    try:
        if kind == MessageType.EVALUATE and not evaluation_allowed(context):
            raise PolicyViolation(f"this node does not evaluate: its owner has set {EVALUATION} to false")
        if kind != MessageType.TRAIN:
            return _train(message, context, call_next)
        if not is_ours(message.content):
            raise MissingStrategy
        return _Task(message, context, call_next).answer()
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


@dataclass
class _Task:
    """One message, and the answer to it."""

    message: Message
    context: Context
    call_next: Train

    def __post_init__(self) -> None:
        self._start = time.perf_counter()
        self._packet = read_packet(self.message.content)
        self._policy: Policy = policy_of(self.context)
        self._enrolment: Enrolment | None = enrolment_of(self.context)
        self._packages: list[bytes] = []
        self._fields: dict[str, Value] = {}

    def answer(self) -> Message:
        """Act on the message. Packages that the server lacks are dealt even if what it asks for is refused."""
        with self._open_ledger() as ledger:
            try:
                payload = self._act(ledger)
            except SparseSecAggError as error:
                if not self._packages:
                    raise
                _LOG.error("secagg_mod: %s: %s", type(error).__name__, error)
                return refusal(self.message, error, self._reply(b""))
        return Message(RecordDict(self._reply(payload).records()), reply_to=self.message)

    def _reply(self, payload: bytes) -> Packet:
        # What the protocol cost, without training: how long a node trains is nobody's business.
        fields = {**self._fields, "seconds": time.perf_counter() - self._start}
        return Packet(self._packet.stage, self._packet.round_number, payload, self._packages, fields)

    def _act(self, ledger: SqliteLedger) -> bytes:
        packet = self._packet
        if packet.stage is Stage.ADVERTISE_KEYS:
            return self._advertise_keys(ledger)
        state = ledger.state()
        if state is None:
            raise NotInRun
        identity = self._enrolment.identity if self._enrolment else None
        client = Client.restore(state, self._policy, identity=identity, ledger=ledger)
        match packet.stage:
            case Stage.DRAW:
                return client.reveal(packet.payload)
            case Stage.SHARE_KEYS:
                if packet.payload:
                    client.join(packet.payload)
                self._packages = self._dealt(client)
                self._prove(client.params, b"".join(self._packages))
                return b""
            case Stage.UPLOAD:
                # On record by themselves: they leave even if the upload is refused.
                self._packages = self._dealt(client)
                return self._upload(client)
            case Stage.CONFIRM:
                return client.confirm(packet.payload)
            case Stage.UNMASK:
                return client.unmask(packet.payload)
        raise WrongStage(packet.stage.name, "a round")

    # Whose ledger, and which user

    def _open_ledger(self) -> SqliteLedger:
        """Return the ledger of this run and user. With a roster both are the node's own to say, not the server's."""
        run, folder = self._packet.bytes_field("run"), ledger_folder(self.context)
        if self._enrolment is None:
            if self._packet.stage is Stage.ADVERTISE_KEYS:
                params = self._parameters()
                if params.authenticated:
                    raise PolicyViolation(f"the run is authenticated, and this node has no {ROSTER} and {RUN_KEY}")
            return SqliteLedger(folder, run, self._packet.int_field("user"))
        if self._packet.stage is Stage.ADVERTISE_KEYS:
            self._parameters()  # A run that the policy forbids is refused for that reason.
        identity = self._enrolment.identity
        if run != identity.roster.digest:
            raise PolicyViolation("the run is bound to another roster than this node's, or to none")
        return SqliteLedger(folder, run, identity.user, self._enrolment.chain)

    def _parameters(self) -> Parameters:
        params = Parameters.decode(self._packet.bytes_field("params"))
        self._policy.check_parameters(params)
        if params.run != self._packet.bytes_field("run"):
            raise MalformedMessage("the message names another run than its parameters")
        return params

    def _prove(self, params: Parameters, statement: bytes) -> None:
        """Say which user of the roster this is, and prove it, if the server asks."""
        if self._enrolment is None or "challenge" not in self._packet.fields:
            return
        user = self._enrolment.identity.user
        claim = Claim(params.run, self.context.node_id, user, statement)
        proof = prove(claim, self._enrolment.run_key, self._packet.bytes_field("challenge"))
        self._fields |= {"user": user, "proof": proof}

    # Stages

    def _advertise_keys(self, ledger: SqliteLedger) -> bytes:
        """Return a fresh sealing key, and say what this node was told of the run and has seen of it."""
        params, state = self._parameters(), ledger.state()
        identity = self._enrolment.identity if self._enrolment else None
        if state is None:
            user = identity.user if identity else self._packet.int_field("user")
            client = Client(user, params, self._policy, identity=identity, ledger=ledger)
        else:
            client = Client.restore(state, self._policy, identity=identity, ledger=ledger, params=params)
        advertisement = client.advertise_keys(self._packet.int_field("epoch"))
        last_round, last_draw = client.seen
        self._fields |= {
            "run-config": run_config_digest(self.context),
            "last-round": last_round,
            "last-draw": last_draw,
        }
        self._prove(params, advertisement)
        return advertisement

    def _dealt(self, client: Client) -> list[bytes]:
        """Return the packages that the server lacks; what was dealt before goes out again as it was."""
        wanted = self._packet.rounds_field("wanted")
        dealt = client.share_keys(self._packet.round_number, again=True) if wanted else []
        return [each for each in dealt if decode_client_message(each).round_number in wanted]

    def _upload(self, client: Client) -> bytes:
        """Train, then mask."""
        packet, replicas = self._packet, Replicas(ledger_folder(self.context) / "models")
        content, held = replicas.receive(without_ours(self.message.content), packet)
        terms = Terms.read(packet)
        digest = terms.digest(content, self.message.metadata.message_type, run_config_digest(self.context))
        answer = client.check_order(packet.payload, terms=digest)
        # Only now: the order is about this model. And before training, which may fail.
        if held is not None and replicas.keep(held):
            self._fields[HELD] = held.replica.sequence
        if answer is not None:
            return answer
        received = _only_arrays(content, "message")
        template = Template.of(received)
        if len(terms.scales) != len(template.travelling):
            raise MalformedMessage(f"{len(template.travelling)} arrays need a scale each, got {len(terms.scales)}")
        # The train function gets a message of its own, whose arrays it may clear; the difference is still to be made.
        begun = time.perf_counter()
        reply = _train(_with_own_arrays(self.message, content), self.context, self.call_next)
        self._start += time.perf_counter() - begun

        metrics = next(iter(reply.content.metric_records.values()), MetricRecord())
        weight = self._weight(metrics, terms.weight_key, client.params.max_weight)
        trained, extra = _only_arrays(reply.content, "reply"), _metrics(metrics, terms)
        update = ModelUpdate(template, received, trained, terms.scales, extra)
        return client.upload(packet.payload, update, weight, terms=digest)

    def _weight(self, metrics: MetricRecord, key: str, limit: int) -> int:
        """Return the weight that takes part: the node's own, on the public grid; 1 in a run without weights."""
        if not limit:
            return 1
        node = str(self.context.node_config.get("partition-id", ""))
        return rounded(_weight(metrics, key), limit, coin(ledger_folder(self.context), node))


def _train(message: Message, context: Context, call_next: Train) -> Message:
    try:
        reply = call_next(message, context)
    except Exception as error:
        raise _TrainingError from error
    if reply.has_error():
        raise _TrainingError(reply)
    return reply


def _only_arrays(content: RecordDict, where: str) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise InvalidInput("arrays", f"must be the one ArrayRecord of the {where}, which has {len(records)}")
    return records[0]


def _with_own_arrays(message: Message, content: RecordDict) -> Message:
    """Return the message with this content, whose arrays the receiver may clear."""
    own = copy.copy(message)
    own.content = RecordDict(
        {name: ArrayRecord(dict(each)) if isinstance(each, ArrayRecord) else each for name, each in content.items()}
    )
    return own


def _weight(metrics: MetricRecord, key: str) -> int:
    """Return the private weight; its value never enters an error's text. One above the limit counts as the limit."""
    value = metrics.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value != int(value):
        raise InvalidInput(key, "must be in the metrics of the reply, as a whole number: it is the weight of this node")
    if value < 0:
        raise InvalidInput(key, "must not be negative: it is the weight of this node")
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


def evaluate_first(evaluate: Train) -> Callable[[Message, Context, Train], Message]:
    """Return a mod that tests the received model before training: `mods=[secagg_mod, evaluate_first(evaluate)]`.

    `evaluate` is the app's evaluate function. Its metrics join those of the train function's reply, whose names win;
    `SecAgg(..., metrics={"eval_acc": 1.0})` then averages them under the masks, by the weights of training. They are
    about the model of the round before. Put it after `secagg_mod`, or the metrics travel in the clear.

    Flower evaluates in messages of their own, and their replies name single nodes. But the model that a node is sent to
    train is the one that was to be tested, so it can be tested there, and the metrics can travel with the update.
    """

    def mod(message: Message, context: Context, call_next: Train) -> Message:
        # A message of its own, since the function may clear the arrays that training needs.
        tested = evaluate(_with_own_arrays(message, message.content), context)
        reply = call_next(message, context)
        if tested.has_error() or reply.has_error():
            return tested if tested.has_error() else reply
        found = next(iter(tested.content.metric_records.values()), MetricRecord())
        for name, record in reply.content.metric_records.items():
            reply.content[name] = MetricRecord({**found, **record})
            break
        return reply

    return mod
