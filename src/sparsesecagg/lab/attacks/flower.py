"""A server that lies to nodes of Flower, against the real mod. Needs the extra `flower`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import context, exchanges, mod, node
from sparsesecagg.flower.records import read_packet
from sparsesecagg.lab.attacks.base import Loot, Setting, attack, replaced, without
from sparsesecagg.lab.attacks.flower_world import CLIP, DIM, FIRST, RATE, FlowerWorld, answer_of, changed
from sparsesecagg.lab.attacks.local_grid import stage_of, travel
from sparsesecagg.lab.audit.adversary import Adversary
from sparsesecagg.protocol import SqliteLedger
from sparsesecagg.protocol.ledger import Entry
from sparsesecagg.protocol.messages import Unmask, encode
from sparsesecagg.protocol.stages import Progress


@attack(
    "All nodes but one are told a learning rate of zero, so that the sum is the last one's update.",
    "Nodes that are told different things have no masks in common, and the mod refuses.",
    without(context.Terms, "digest", lambda self, *told: bytes(32)),
)
def flower_other_rate(setting: Setting, loot: Loot) -> None:
    """Attack 3 of version 1."""
    with FlowerWorld(setting, loot) as world:

        def lie(user: int, message: Any) -> None:
            if stage_of(message) == "UPLOAD" and user != world.victim:
                message.content["config"] = ConfigRecord({**message.content.config_records["config"], RATE: 0.0})

        mean = world.start(lie).arrays["w"].numpy()
        loot.values += world.right(mean * world.nodes)


def _unbound(message: Any, content: Any, *known: Any) -> Any:
    return Message(content=content, metadata=message.metadata)  # type: ignore[call-overload]


@attack(
    "An app's rate falls with the message's group_id, and all nodes but one are sent a large one.",
    "An app sees only what the header binds; message metadata come from the node itself.",
    without(mod, "for_app", _unbound),
)
def flower_group_id(setting: Setting, loot: Loot) -> None:
    """S9."""
    with FlowerWorld(setting, loot) as world:

        def train(user: int, message: Any) -> Any:
            return world.updates[user] * np.float32(int(message.metadata.group_id) < 1000), {}

        def lie(user: int, message: Any) -> None:
            if stage_of(message) == "UPLOAD" and user != world.victim:
                message.metadata.__dict__["_group_id"] = "1000000"

        world.train = train
        mean = world.start(lie).arrays["w"].numpy()
        loot.values += world.right(mean * world.nodes)


def _unrecorded(self: SqliteLedger, entry: Entry, *written: Any, genuine: Any = SqliteLedger.record) -> None:
    """Let a node give its shares without writing it down."""
    if entry.progress != Progress.OVER or not entry.answer:
        genuine(self, entry, *written)


@attack(
    "A second UNMASK task runs on a context that was put back, with other survivors.",
    "A node gives its shares once: the ledger is a file of its own, whatever Flower's context says.",
    without(SqliteLedger, "record", _unrecorded),
)
def flower_second_task(setting: Setting, loot: Loot) -> None:
    """Attack 2 of version 1."""
    with FlowerWorld(setting, loot) as world:
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
            shown, others = world.shown, range(world.nodes - 1)
            if user != world.victim:
                adversary = _fed(world)
                again = encode(adversary.request(shown.header, user, others))
                second = answer_of(world.ask(user, changed(message, payload=again)))
                if isinstance(second, Unmask):
                    heard.append((user, second))
            if len({each for each, _ in heard}) == world.nodes:
                loot.values += _read(world, heard)

        world.spy = ask_again
        world.start(watch)


def _fed(world: Any) -> Adversary:
    """Return the adversary with the uploads of the round."""
    shown = world.shown
    adversary = Adversary(shown.epoch, shown.header.round_number, shown.packages)
    for user, upload in world.uploads.items():
        adversary.take_upload(user, shown.header, upload)
    return adversary


def _read(world: Any, heard: list[tuple[int, Unmask]]) -> int:
    adversary = _fed(world)
    for user, message in heard:
        adversary.take_shares(user, message)
    adversary.restore()
    found = adversary.read([world.victim])
    limit = adversary.epoch.params.quantizer.limit
    return 0 if found is None else world.right(found.values[: len(world.updates[0])] / limit * CLIP)


@contextmanager
def without_mod() -> Iterator[None]:
    """Let the mod pass messages of other servers on."""

    class PassOn:
        def __init__(self, message: Any, owner: Any, packet: Any, call_next: Callable[..., Any]) -> None:
            self.answer = lambda: call_next(message, owner.context)

    with (
        replaced(mod, "is_ours", lambda content: True),
        replaced(mod, "read_packet", lambda content: None),
        replaced(mod, "_Task", PassOn),
    ):
        yield


@attack(
    "A server without secure aggregation asks for the trained model.",
    "A node with the mod sends no model in the clear.",
    without_mod,
)
def flower_in_the_clear(setting: Setting, loot: Loot) -> None:
    """As FedAvg alone does."""
    with FlowerWorld(setting, loot) as world:
        model = ArrayRecord({"w": Array(np.zeros(DIM, np.float32))})
        content = RecordDict({"arrays": model, "config": ConfigRecord({RATE: 1.0})})
        reply = world.ask(world.victim, Message(content, FIRST + world.victim, "train"))
        if not reply.has_error():
            loot.values += world.right(reply.content.array_records["arrays"]["w"].numpy())


@attack(
    "A server sends one node evaluate messages with models of its choice: differences of losses are its gradient.",
    "With a roster, a node evaluates only if its owner allows it; without one, open evaluation reveals its gradient.",
    without(node.Owner, "evaluates", property(lambda self: True)),
    promised=("authenticated",),
)
def flower_evaluation(setting: Setting, loot: Loot) -> None:
    """S8."""
    with FlowerWorld(setting, loot) as world:
        reply = world.ask(world.victim, Message(RecordDict(), FIRST + world.victim, "evaluate"))
        loot.values += 0 if reply.has_error() else len(reply.content.metric_records["metrics"])


@attack(
    "The server asks for a metric that the owners have not named, to be averaged under the masks.",
    "With a roster, only metrics that the owner names leave a node, and the owner names the weight.",
    without(node.Owner, "allows_metric", lambda self, name: True),
    promised=("authenticated",),
)
def flower_metric(setting: Setting, loot: Loot) -> None:
    """S7: count the nodes that answer."""
    with FlowerWorld(setting, loot) as world:
        world.train = lambda user, message: (world.updates[user], {"has-disease": float(user == world.victim)})
        world.start(metrics={"has-disease": 1.0})
        loot.values += len(world.uploads)


def _shape(item: tuple[str, Any]) -> str:
    """Return what can be seen of a field that should tell nothing: texts as they are, of bytes their number."""
    name, value = item
    sizes = [len(each) for each in (value if isinstance(value, list) else [value]) if isinstance(each, bytes)]
    return f"{name} {sizes or value}"


def _strict_metric(metrics: Any, name: str) -> float:
    if name not in metrics or not np.isfinite(metrics[name]):
        raise InvalidInput("metrics", f"must have a finite {name}")
    return float(metrics[name])


@attack(
    "The server asks for a metric, and a model on which training fails or overflows on some nodes' data.",
    "No reply depends on data: a missing or non-finite value counts as 0, and an app that fails gets one fixed text.",
    without(mod, "_metric", _strict_metric),
)
def flower_data_oracle(setting: Setting, loot: Loot) -> None:
    """S3: count the nodes that can be told from the first by what comes back, apart from an app that raises."""
    with FlowerWorld(setting, loot) as world:
        metrics: list[dict[str, Any]] = [{"loss": 1.0}, {"loss": np.inf}, {}, {"loss": np.nan}]
        replies: dict[int, str] = {}
        for each in world.grid.contexts.values():
            each.node_config[node.METRICS] = "loss"

        def train(user: int, message: Any) -> Any:
            change = world.updates[user] * np.float32(np.nan if user % 2 else 1)
            return change, metrics[user % len(metrics)]

        def watch(user: int, reply: Any) -> None:
            if reply.has_error() or stage_of(reply) == "UPLOAD":
                replies[user] = (
                    "error" if reply.has_error() else str(sorted(map(_shape, dict(reply.content["secagg"]).items())))
                )

        world.train, world.spy = train, watch
        with loot.noting():
            world.start(metrics={"loss": 1.0})
        loot.values += sum(each != replies[0] for each in replies.values())


@attack(
    "A server leaves the roster out and runs without it among nodes that have one.",
    "A node that has a roster takes part in nothing that is not bound to it.",
    without(node, "_enrolment", lambda named: None),
    modes=("authenticated",),
    promised=("authenticated",),
)
def flower_downgrade(setting: Setting, loot: Loot) -> None:
    """Count the uploads that come."""
    with FlowerWorld(setting, loot) as world:
        try:
            world.start(roster=False)
        finally:
            loot.values += len(world.uploads)


@attack(
    "One node is addressed as several users of a run, so that the sum is its own.",
    "A node is one user of a run: its ledger knows which.",
    without(SqliteLedger, "users", lambda self: set()),
    modes=("plain",),
    promised=("plain",),
)
def flower_many_users(setting: Setting, loot: Loot) -> None:
    """S17: count the users beyond the first that one node advertises keys for."""
    with FlowerWorld(setting, loot) as world:

        def lie(user: int, message: Any) -> None:
            if stage_of(message) == "ADVERTISE_KEYS" and user == world.victim:
                for other in range(world.nodes - 1):
                    reply = world.ask(user, changed(message, user=other))
                    loot.values += int(not reply.has_error() and bool(read_packet(reply.content).payload))
                loot.values = max(0, loot.values - 1)

        world.start(lie)


@attack(
    "One message names the last epoch that there can be, so that the node is of no use to any later one.",
    "A node follows a bounded number of epochs; a larger leap is refused and changes nothing.",
    without(mod, "LEAP", 1 << 64),
)
def flower_far_epoch(setting: Setting, loot: Loot) -> None:
    """S15: count nodes that can't take part in an honest run afterwards."""
    with FlowerWorld(setting, loot) as world:

        def lie(user: int, message: Any) -> None:
            if stage_of(message) == "ADVERTISE_KEYS" and user == world.victim:
                world.ask(user, changed(message, epoch=(1 << 63) - 1))

        world.start(lie)
        loot.values += int(world.victim not in world.uploads)


def _trusting(self: Any, stage: Any, sent: Any, replies: Any, answered: Any = None) -> None:
    for number, reply in replies.items():
        if dict(reply.content["secagg"]).get("stage") in {"x": 0}:  # As version 2 looked it up.
            continue
        self._accept(number, sent[number], reply, answered)


@attack(
    "One node answers with a control record whose stage is a list.",
    "A malformed reply costs its sender the round, and nobody else anything.",
    without(exchanges.Exchanges, "take", _trusting),
)
def flower_odd_reply(setting: Setting, loot: Loot) -> None:
    """S4: count rounds that are lost."""
    with FlowerWorld(setting, loot) as world:
        world.spy = lambda user, reply: changed(reply, stage=["x"]) if user == 0 and not reply.has_error() else None
        try:
            moved = world.start().arrays["w"].numpy()
            loot.values += int(not moved.any())
        except Exception as error:  # In the control whatever the reply makes of the server.
            loot.refusals.append(type(error).__name__)
            loot.values += 1
