"""A server that lies to nodes of Flower, against the real mod. Needs the extra `flower`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from sparsesecagg.errors import require
from sparsesecagg.flower import messages, mod, node, run
from sparsesecagg.flower.messages import read_packet
from sparsesecagg.lab.attacks.base import attack, without
from sparsesecagg.lab.attacks.flower_world import CLIP, DIM, FIRST, RATE, FlowerWorld, answer_of, changed
from sparsesecagg.lab.attacks.local_grid import stage_of, travel
from sparsesecagg.protocol import SqliteLedger, client
from sparsesecagg.protocol.ledger import Entry
from sparsesecagg.protocol.messages import Unmask, encode
from sparsesecagg.protocol.stages import Progress


@attack(without(messages.Terms, digest=lambda self, *told: bytes(32)), FlowerWorld)
def flower_other_rate(world: FlowerWorld) -> None:
    """All nodes but one are told a learning rate of zero, so that the sum is the last one's update.

    Nodes that are told different things have no masks in common, and the mod refuses.
    """

    def lie(user: int, message: Any) -> None:
        if stage_of(message) == "UPLOAD" and user != world.victim:
            message.content["config"] = ConfigRecord({**message.content.config_records["config"], RATE: 0.0})

    world.play.values += world.right(world.start(lie) * world.nodes)


def _unbound(message: Any, content: Any, *known: Any) -> Any:
    return Message(content=content, metadata=message.metadata)  # type: ignore[call-overload]


@attack(without(mod, for_app=_unbound), FlowerWorld)
def flower_group_id(world: FlowerWorld) -> None:
    """An app's rate falls with the message's group_id, and all nodes but one are sent a large one.

    An app sees only what the header binds; message metadata come from the node itself.
    """

    def lie(user: int, message: Any) -> None:
        if stage_of(message) == "UPLOAD" and user != world.victim:
            message.metadata.__dict__["_group_id"] = "1000000"

    world.train = lambda user, message: (world.updates[user] * np.float32(int(message.metadata.group_id) < 1000), {})
    world.play.values += world.right(world.start(lie) * world.nodes)


def _unrecorded(self: SqliteLedger, entry: Entry, *written: Any, genuine: Any = SqliteLedger.record) -> None:
    """Let a node give its shares without writing it down."""
    if entry.progress != Progress.OVER or not entry.answer:
        genuine(self, entry, *written)


@attack(without(SqliteLedger, record=_unrecorded), FlowerWorld)
def flower_second_task(world: FlowerWorld) -> None:
    """A second UNMASK task runs on a context that was put back, with other survivors.

    A node gives its shares once: the ledger is a file of its own, whatever Flower's context says.
    """
    kept: dict[int, tuple[Any, Any]] = {}
    heard: list[tuple[int, Unmask]] = []

    def watch(user: int, message: Any) -> None:
        if stage_of(message) == "UNMASK":
            kept[user] = travel(message), copy.deepcopy(world.grid.contexts[FIRST + user])

    def ask_again(user: int, reply: Any) -> None:
        first = answer_of(reply)
        if not isinstance(first, Unmask):
            return
        heard.append((user, first))
        message, world.grid.contexts[FIRST + user] = kept.pop(user)
        if user != world.victim:
            again = encode(world.adversary().request(world.shown.header, user, range(world.nodes - 1)))
            second = answer_of(world.ask(user, changed(message, payload=again)))
            if isinstance(second, Unmask):
                heard.append((user, second))
        if len({each for each, _ in heard}) == world.nodes:
            world.play.values += _read(world, heard)

    world.spy = ask_again
    world.start(watch)


def _read(world: FlowerWorld, heard: list[tuple[int, Unmask]]) -> int:
    adversary = world.adversary()
    for user, message in heard:
        adversary.take_shares(user, message)
    adversary.restore()
    found = adversary.read([world.victim])
    limit = adversary.epoch.params.quantizer.limit
    return 0 if found is None else world.right(found.values[:DIM] / limit * CLIP)


class _PassOn:
    """Passes messages of other servers on."""

    def __init__(self, message: Any, owner: Any, packet: Any, call_next: Callable[..., Any]) -> None:
        self.answer = lambda: call_next(message, owner.context)


@attack(without(mod, is_ours=lambda content: True, read_packet=lambda content: None, _Task=_PassOn), FlowerWorld)
def flower_in_the_clear(world: FlowerWorld) -> None:
    """A server without secure aggregation asks for the trained model.

    A node with the mod sends no model in the clear.
    """
    model = ArrayRecord({"w": Array(np.zeros(DIM, np.float32))})
    content = RecordDict({"arrays": model, "config": ConfigRecord({RATE: 1.0})})
    reply = world.ask(world.victim, Message(content, FIRST + world.victim, "train"))
    if not reply.has_error():
        world.play.values += world.right(reply.content.array_records["arrays"]["w"].numpy())


@attack(without(node.Owner, evaluates=property(lambda self: True)), FlowerWorld, promised=("authenticated",))
def flower_evaluation(world: FlowerWorld) -> None:
    """A server sends one node evaluate messages with models of its choice: differences of losses are its gradient.

    With a roster, a node evaluates only if its owner allows it; without one, open evaluation reveals its gradient.
    """
    reply = world.ask(world.victim, Message(RecordDict(), FIRST + world.victim, "evaluate"))
    world.play.values += 0 if reply.has_error() else len(reply.content.metric_records["metrics"])


@attack(without(node.Owner, allows_metric=lambda self, name: True), FlowerWorld, promised=("authenticated",))
def flower_metric(world: FlowerWorld) -> None:
    """The server asks for a metric that the owners have not named, to be averaged under the masks.

    With a roster, only metrics that the owner names leave a node, and the owner names the weight.
    """
    world.train = lambda user, message: (world.updates[user], {"has-disease": float(user == world.victim)})
    world.start(metrics={"has-disease": 1.0})
    world.play.values += len(world.uploads)


def _shape(item: tuple[str, Any]) -> str:
    """Return what can be seen of a field that should tell nothing: texts as they are, of bytes their number."""
    name, value = item
    sizes = [len(each) for each in (value if isinstance(value, list) else [value]) if isinstance(each, bytes)]
    return f"{name} {sizes or value}"


def _strict_metric(metrics: Any, name: str) -> float:
    require("metrics", name in metrics and np.isfinite(metrics[name]), f"must have a finite {name}")
    return float(metrics[name])


@attack(without(mod, _metric=_strict_metric), FlowerWorld)
def flower_data_oracle(world: FlowerWorld) -> None:
    """The server asks for a metric, and a model on which training fails or overflows on some nodes' data.

    No reply depends on data, but for whether the app fails: a missing or non-finite value counts as 0, and an app that
    fails gets one fixed text.
    """
    metrics: list[dict[str, Any]] = [{"loss": 1.0}, {"loss": np.inf}, {}, {"loss": np.nan}]
    replies: dict[int, str] = {}
    for each in world.grid.contexts.values():
        each.node_config[node.METRICS] = "loss"

    def train(user: int, message: Any) -> Any:
        return world.updates[user] * np.float32(np.nan if user % 2 else 1), metrics[user % len(metrics)]

    def watch(user: int, reply: Any) -> None:
        if reply.has_error():
            replies[user] = "error"
        elif stage_of(reply) == "UPLOAD":
            replies[user] = str(sorted(map(_shape, dict(reply.content["secagg"]).items())))

    world.train, world.spy = train, watch
    with world.play.noting():
        world.start(metrics={"loss": 1.0})
    world.play.values += sum(each != replies[0] for each in replies.values())


@attack(without(node, _enrolment=lambda named: None), FlowerWorld, modes=("authenticated",))
def flower_downgrade(world: FlowerWorld) -> None:
    """A server leaves the roster out and runs without it among nodes that have one.

    A node that has a roster takes part in nothing that is not bound to it.
    """
    try:
        world.start(roster=False)
    finally:
        world.play.values += len(world.uploads)


@attack(without(SqliteLedger, users=lambda self: set()), FlowerWorld, modes=("plain",))
def flower_many_users(world: FlowerWorld) -> None:
    """One node is addressed as several users of a run, so that the sum is its own.

    A node is one user of a run: its ledger knows which.
    """

    def lie(user: int, message: Any) -> None:
        if stage_of(message) == "ADVERTISE_KEYS" and user == world.victim:
            replies = [world.ask(user, changed(message, user=other)) for other in range(world.nodes - 1)]
            keys = sum(not reply.has_error() and bool(read_packet(reply.content).payload) for reply in replies)
            world.play.values += max(0, keys - 1)

    world.start(lie)


@attack(without(client, LEAP=1 << 64), FlowerWorld)
def flower_far_epoch(world: FlowerWorld) -> None:
    """One message names the last epoch that there can be, so that the node is of no use to any later one.

    A node follows a bounded number of epochs; a larger leap is refused and changes nothing.
    """

    def lie(user: int, message: Any) -> None:
        if stage_of(message) == "ADVERTISE_KEYS" and user == world.victim:
            world.ask(user, changed(message, epoch=(1 << 63) - 1))

    world.start(lie)
    world.play.values += int(world.victim not in world.uploads)


def _trusting(self: Any, stage: Any, requests: Any, replies: Any) -> dict[int, Any]:
    taken = {}
    for number, reply in replies.items():
        if dict(reply.content["secagg"]).get("stage") in {"x": 0}:  # As version 2 looked it up.
            continue
        taken[number] = self._accept(number, requests[number][0], reply)
    return taken


@attack(without(run.SecureRun, take=_trusting), FlowerWorld)
def flower_odd_reply(world: FlowerWorld) -> None:
    """One node answers with a control record whose stage is a list.

    A malformed reply costs its sender the round, and nobody else anything.
    """
    world.spy = lambda user, reply: changed(reply, stage=["x"]) if user == 0 and not reply.has_error() else None
    try:
        world.play.values += int(not world.start().any())
    except Exception as error:  # In the control whatever the reply makes of the server.
        world.play.refusals.append(type(error).__name__)
        world.play.values += 1
