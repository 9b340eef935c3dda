"""The node's side: a mod around the ClientApp's train function.

Every stage arrives as a train message with a control record. Only UPLOAD reaches the train function, which sees the
message that the wrapped strategy made and answers as it always does; its arrays, weight and metrics never leave the
node in the clear. What the node has answered, and its secrets, are in its ledger and not in Flower's context: of two
tasks that run at the same time one is answered, and a context that is copied or put back changes nothing.

Nothing that a server can see depends on this node's data, but for whether the app fails. The round's header is on
record before the app trains, so a round trains once, for one model. From then on there are two answers: masked words of
a length that everybody knows, or one fixed text, whatever went wrong in the app. Refusals before that depend on what
the server sent, on the owner's configuration and on what was answered earlier, and on nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord, RecordDict

from sparsesecagg.errors import (
    AlreadyAnswered,
    MalformedMessage,
    PolicyViolation,
    ProtocolError,
    SparseSecAggError,
    require,
)
from sparsesecagg.files import write_atomically
from sparsesecagg.flower.arrays import SavedArrays, Template, own_records, saved_arrays, written_arrays
from sparsesecagg.flower.downlink import Replicas
from sparsesecagg.flower.errors import AppFailed, MissingStrategy
from sparsesecagg.flower.messages import Packet, Terms, app_digest, for_app, is_ours, read_packet, refusal, without_ours
from sparsesecagg.flower.node import EVALUATE, METRICS, ROSTER, RUN_KEY, Claim, Owner, prove, rounded
from sparsesecagg.flower.packing import Packing
from sparsesecagg.protocol import Client, Parameters, SqliteLedger, Stage
from sparsesecagg.protocol.messages import decode_client_message

_LOG = logging.getLogger("flwr")
_UPDATE = ".update"

Train = Callable[[Message, Context], Message]
"""A function of the ClientApp."""


def secagg_mod(message: Message, context: Context, call_next: Train) -> Message:
    """Take part in secure aggregation: `@app.train(mods=[secagg_mod])`.

    Put it first if there are other mods. A train message of a server without `SecAgg` is refused, because answering it
    would send the model in the clear. Around other functions, evaluate for one, whose replies are not masked, the mod
    refuses unless the node's owner lets it answer: with a roster that takes `secagg-evaluate=true`.
    """
    try:
        owner = Owner(context)
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            if not owner.evaluates:
                raise PolicyViolation(f"this node does not evaluate: its owner has not set {EVALUATE} to true")
            return call_next(message, context)
        if not is_ours(message.content):
            raise MissingStrategy
        return _Task(message, owner, read_packet(message.content), call_next).answer()
    except SparseSecAggError as error:
        _LOG.error("secagg_mod: %s: %s", type(error).__name__, error)
        return refusal(message, error)
    except Exception:
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            raise  # The app's own, in a function whose replies are not masked anyway.
        _LOG.exception("secagg_mod failed")
        return refusal(message, SparseSecAggError("the mod failed; the log of the node says why"))


@dataclass
class _Task:
    """One message, and the answer to it."""

    message: Message
    owner: Owner
    packet: Packet
    call_next: Train
    packages: list[bytes] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)
    """What the reply says beside its payload."""

    def answer(self) -> Message:
        """Act on the message. Packages that the server lacks are sent even if what it asks for is refused."""
        with self._open_ledger() as ledger:
            try:
                payload = self._act(ledger)
            except SparseSecAggError as error:
                _LOG.error("secagg_mod: %s: %s", type(error).__name__, error)
                return refusal(self.message, error, self._reply(b""))
        return Message(RecordDict(self._reply(payload).records()), reply_to=self.message)

    def _reply(self, payload: bytes) -> Packet:
        return Packet(self.packet.stage, self.packet.round_number, payload, self.packages, **self.told)

    def _act(self, ledger: SqliteLedger) -> bytes:
        packet = self.packet
        if packet.stage is Stage.ADVERTISE_KEYS:
            return self._advertise_keys(ledger)
        state = ledger.state()
        if state is None:
            raise ProtocolError("this node has no keys in this run; it can take part in the next one")
        client = Client.restore(state, self.owner.policy, identity=self.owner.identity, ledger=ledger)
        if packet.stage is Stage.UNMASK:
            return client.unmask(packet.payload)
        if packet.stage is Stage.SHARE_KEYS and packet.payload:
            client.join(packet.payload)
        # On record by themselves: they leave even if an upload is refused.
        self.packages = self._key_packages(client)
        if packet.stage is Stage.UPLOAD:
            return self._upload(client, ledger)
        self.told["app"] = app_digest(self.owner.context)
        self._prove(client.params, b"".join(self.packages))
        return b""

    # Whose ledger, and which user

    def _open_ledger(self) -> SqliteLedger:
        """Return the ledger of this run and user. With a roster both are the node's own to say, not the server's."""
        run, identity = self.packet.need("run"), self.owner.identity
        if self.packet.stage is Stage.ADVERTISE_KEYS:
            self._parameters()  # A run that the policy forbids is refused for that reason, and leaves no trace.
        if identity is not None:
            if run != identity.roster.digest:
                raise PolicyViolation("the run is bound to another roster than this node's, or to none")
            return SqliteLedger(self.owner.folder, run, identity.user, identity.roster)
        user = self.packet.need("user")
        ledger = SqliteLedger(self.owner.folder, run, user)
        if others := ledger.users() - {user}:
            ledger.close()
            raise PolicyViolation(f"this node is user {min(others)} of the run, and can't be user {user} as well")
        return ledger

    def _parameters(self) -> Parameters:
        params, identity = Parameters.decode(self.packet.need("params")), self.owner.identity
        if params.authenticated and identity is None:
            raise PolicyViolation(f"the run is authenticated, and this node has no {ROSTER} and {RUN_KEY}")
        self.owner.policy.check(params, identity.roster if identity else None)
        if params.run != self.packet.run:
            raise MalformedMessage("the message names another run than its parameters")
        return params

    def _prove(self, params: Parameters, statement: bytes) -> None:
        """Say which user of the roster this is, and prove it, if the server asks."""
        enrolment, challenge = self.owner.enrolment, self.packet.challenge
        if enrolment is None or challenge is None:
            return
        user = enrolment.identity.user
        claim = Claim(params.run, self.owner.context.node_id, user, statement)
        self.told |= {"user": user, "proof": prove(claim, enrolment.run_key, challenge)}

    # Stages

    def _advertise_keys(self, ledger: SqliteLedger) -> bytes:
        """Return a fresh sealing key, and say what this node was told of the run and has seen of it."""
        params, state, epoch = self._parameters(), ledger.state(), self.packet.need("epoch")
        identity = self.owner.identity
        if state is None:
            user = identity.user if identity else self.packet.need("user")
            client = Client(user, params, self.owner.policy, identity=identity, ledger=ledger)
        else:
            client = Client.restore(state, self.owner.policy, identity=identity, ledger=ledger, params=params)
        self.told |= {"last_round": client.round_number, "last_epoch": client.epoch_number}
        try:
            advertisement = client.advertise_keys(epoch)
        except AlreadyAnswered:
            self._prove(params, b"")  # So that a server that was started again knows where this node is.
            raise
        self.told |= {"app": app_digest(self.owner.context), "last_epoch": 0}
        self._prove(params, advertisement)
        return advertisement

    def _key_packages(self, client: Client) -> list[bytes]:
        """Return the packages that the server lacks; what was made before goes out again as it was."""
        wanted = self.packet.wanted
        made = client.share_keys(self.packet.round_number, again=True) if wanted else []
        return [each for each in made if decode_client_message(each).round_number in wanted]

    def _upload(self, client: Client, ledger: SqliteLedger) -> bytes:
        """Put the header on record, train, mask."""
        packet, replicas, params = self.packet, Replicas(self.owner.models), client.params
        content, held = replicas.receive(without_ours(self.message.content), packet)
        terms = Terms.read(packet)
        for name in terms.metrics:
            if not self.owner.allows_metric(name):
                raise PolicyViolation(f"the metric {name!r} stays on this node: its owner has not put it in {METRICS}")
        received = _only_arrays(content)
        packing = Packing(Template.of(received), params, len(terms.metrics))
        packing.check()
        if terms.scales and len(terms.scales) != len(packing.template.travelling):
            raise MalformedMessage(f"{len(packing.template.travelling)} arrays need a scale each, got {terms.scales}")
        if params.mechanism and (terms.metrics or set(terms.scales) != {1.0}):
            raise PolicyViolation("with noise updates go out as they are, without scales and metrics")
        kind, app = self.message.metadata.message_type, app_digest(self.owner.context)
        context = terms.digest(content, kind, app)
        kept = _KeptUpdate(self.owner.folder, replace(terms, scales=()).digest(content, kind, app))
        before = ledger.last().version
        answer = client.accept(packet.payload, context=context)
        # Only now: the header is about this model. And before training, which may fail.
        if held is not None and replicas.keep(held):
            self.told["held"] = held.replica.sequence
        if answer is not None:
            return answer
        if ledger.last().version == before:
            raise AlreadyAnswered(f"round {packet.round_number} has trained once on this node")
        try:
            trained, metrics = kept.take() or self._train(content, client.round_number)
            if params.per_example:
                return client.upload(packet.payload, packing.rows(trained), context=context)
            packing.template.require_same(trained)
            weight = self._weight(metrics, params.max_weight, ledger) if params.max_weight else 1
            if not terms.scales:
                kept.keep(trained, metrics)
                votes = packing.votes(received, trained)
                return client.upload(packet.payload, votes, max(1, params.max_weight), context=context)
            values = [_metric(metrics, name) / bound for name, bound in terms.metrics.items()]
            update = packing.update(received, trained, terms.scales, values, weight)
            return client.upload(packet.payload, update, weight, context=context)
        except Exception as error:
            _LOG.error("secagg_mod: the ClientApp failed in this round", exc_info=error)
            raise AppFailed from None

    def _train(self, content: RecordDict, round_number: int) -> tuple[ArrayRecord, Mapping[str, object]]:
        """Let the app train; return its model and its metrics."""
        message = for_app(self.message, content, round_number, self.owner.context)
        reply = self.call_next(message, self.owner.context)
        metrics = next(iter(reply.content.metric_records.values()), MetricRecord())
        return _only_arrays(reply.content), dict(metrics)

    def _weight(self, metrics: Mapping[str, object], limit: int, ledger: SqliteLedger) -> int:
        """Return the weight that takes part: one that is missing, negative or no finite number counts as 1."""
        coin = int.from_bytes(ledger.own_secret("weight rounding")[:8], "little")
        return rounded(max(1, round(_metric(metrics, self.owner.weight_key))), limit, coin)


class _KeptUpdate:
    """What a node has trained in a round that finds ranges, for the round after it, which sends it.

    The file is private, named by the digest of all that the app was told, and read once. If it is gone, the node trains
    again.
    """

    def __init__(self, folder: Path, context: bytes) -> None:
        self._path = folder / (context.hex() + _UPDATE)

    def keep(self, trained: ArrayRecord, metrics: Mapping[str, object]) -> None:
        """Write them down."""
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        try:
            write_atomically(self._path, msgspec.msgpack.encode((written_arrays(trained), numbers)), private=True)
        except OSError as problem:
            _LOG.warning("secagg_mod: an update can't be kept, so the app trains again: %s", problem.strerror)

    def take(self) -> tuple[ArrayRecord, Mapping[str, object]] | None:
        """Return what was kept for this round, and remove it with everything else that was kept."""
        found: tuple[ArrayRecord, Mapping[str, object]] | None = None
        with suppress(OSError, msgspec.MsgspecError):
            arrays, metrics = msgspec.msgpack.decode(self._path.read_bytes(), type=tuple[SavedArrays, dict[str, float]])
            found = ArrayRecord(saved_arrays(arrays)), metrics
        with suppress(OSError):
            for path in self._path.parent.glob(f"*{_UPDATE}*"):  # With what a killed process left half written.
                path.unlink(missing_ok=True)
        return found


def _only_arrays(content: RecordDict) -> ArrayRecord:
    records = list(content.array_records.values())
    require("arrays", len(records) == 1, f"must be the one ArrayRecord of the message, which has {len(records)}")
    return records[0]


def _metric(metrics: Mapping[str, object], name: str) -> float:
    """Return a metric of the app; one that is missing, or no finite number, counts as 0."""
    value = metrics.get(name)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(value) if usable else 0.0  # type: ignore[arg-type]


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
        own = Message(content=own_records(message.content), metadata=message.metadata)  # type: ignore[call-overload]
        tested = evaluate(own, context)
        reply = call_next(message, context)
        if tested.has_error() or reply.has_error():
            return tested if tested.has_error() else reply
        found = next(iter(tested.content.metric_records.values()), MetricRecord())
        for name, record in reply.content.metric_records.items():
            reply.content[name] = MetricRecord({**found, **record})
            break
        return reply

    return mod
