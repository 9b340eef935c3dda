"""A server that lies to nodes of Flower, against the real mod. Needs the extra `flower`, and imports it when played."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparsesecagg.lab.attacks.base import Attack, Reading, Setting, replaced
from sparsesecagg.protocol import Policy, SqliteLedger, Stage
from sparsesecagg.protocol.ledger import Entry
from sparsesecagg.protocol.stages import ROUND_STAGES


def other_rate(setting: Setting) -> Reading:
    """Tell all nodes but one to train with a learning rate of zero: the sum is the last one's update."""
    from flwr.app import ConfigRecord

    from sparsesecagg.lab.attacks.flower_world import RATE, FlowerWorld
    from sparsesecagg.lab.attacks.local_grid import stage_of

    with FlowerWorld(setting) as world:

        def lie(user: int, message: Any) -> None:
            if stage_of(message) == "UPLOAD" and user != world.victim:
                message.content["config"] = ConfigRecord({**message.content.config_records["config"], RATE: 0.0})

        result = world.start(before=lie)
        mean = result.arrays["w"].numpy()
        return Reading(world.right(world.victim, mean * world.nodes), world.refused_by)


@contextmanager
def without_terms() -> Iterator[None]:
    """Let the digest of the terms say nothing."""
    from sparsesecagg.flower.records import Terms

    with replaced(Terms, "digest", lambda self, *told: bytes(32)):
        yield


def second_task(setting: Setting) -> Reading:
    """Ask every node for shares twice, with and without the victim, each time with the context of before."""
    from sparsesecagg.lab.attacks.flower_world import FlowerWorld, answer_of
    from sparsesecagg.lab.attacks.local_grid import stage_of, travel

    with FlowerWorld(setting) as world:
        first: dict[int, Any] = {}
        second: dict[int, Any] = {}
        kept: dict[int, tuple[Any, Any]] = {}

        def watch(user: int, message: Any) -> None:
            if stage_of(message) == "UNMASK":
                kept[user] = travel(message), copy.deepcopy(world.grid.contexts[100 + user])

        def ask_again(user: int, reply: Any) -> None:
            if user not in kept or (answer := answer_of(reply)) is None:
                return
            first[user] = answer
            message, context = kept.pop(user)
            if user != world.victim:
                world.grid.contexts[100 + user] = context
                again = answer_of(world.ask(user, world.without_victim(message)))
                if again is not None:
                    second[user] = again
            if len(first) == world.nodes:
                world.found = world.read_victim(first, second)

        world.spy = ask_again
        world.start(before=watch)
        return Reading(world.found, world.refused_by)


@contextmanager
def without_record() -> Iterator[None]:
    """Let a node give its shares without writing it down."""
    genuine = SqliteLedger.record

    def record(self: SqliteLedger, entry: Entry, state: Any) -> None:
        if entry.stage != ROUND_STAGES.index(Stage.UNMASK):
            genuine(self, entry, state)

    with replaced(SqliteLedger, "record", record):
        yield


def in_the_clear(setting: Setting) -> Reading:
    """Ask for the trained model as a server without secure aggregation does."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

    from sparsesecagg.lab.attacks.flower_world import DIM, RATE, FlowerWorld

    with FlowerWorld(setting) as world:
        model = ArrayRecord({"w": Array(np.zeros(DIM, np.float32))})
        content = RecordDict({"arrays": model, "config": ConfigRecord({RATE: 1.0})})
        reply = world.ask(world.victim, Message(content, 100 + world.victim, "train"))
        found = (
            0 if reply.has_error() else world.right(world.victim, reply.content.array_records["arrays"]["w"].numpy())
        )
        return Reading(found, world.refused_by)


@contextmanager
def without_mod() -> Iterator[None]:
    """Let the mod pass messages of other servers on."""
    from sparsesecagg.flower import mod

    class PassOn:
        def __init__(self, message: Any, context: Any, call_next: Any) -> None:
            self.answer = lambda: call_next(message, context)

    with replaced(mod, "is_ours", lambda content: True), replaced(mod, "_Task", PassOn):
        yield


def evaluation(setting: Setting) -> Reading:
    """Ask for the metrics of a single node whose owner has forbidden evaluation."""
    from flwr.app import Message, RecordDict

    from sparsesecagg.lab.attacks.flower_world import FlowerWorld

    with FlowerWorld(setting) as world:
        reply = world.ask(world.victim, Message(RecordDict(), 100 + world.victim, "evaluate"))
        return Reading(0 if reply.has_error() else len(reply.content.metric_records["metrics"]), world.refused_by)


@contextmanager
def without_prohibition() -> Iterator[None]:
    """Let nodes evaluate whatever their owners say."""
    from sparsesecagg.flower import mod

    with replaced(mod, "evaluation_allowed", lambda context: True):
        yield


def downgrade(setting: Setting) -> Reading:
    """Run without the roster among nodes that have one; count the uploads that come."""
    from sparsesecagg.errors import SparseSecAggError
    from sparsesecagg.lab.attacks.flower_world import FlowerWorld

    with FlowerWorld(setting) as world:
        try:
            world.start(roster=False)
        except SparseSecAggError as stopped:
            return Reading(len(world.uploads), world.refused_by or type(stopped).__name__)
        return Reading(len(world.uploads), world.refused_by)


@contextmanager
def without_enrolment() -> Iterator[None]:
    """Let nodes forget that they have a roster."""
    from sparsesecagg.flower import mod

    with (
        replaced(mod, "enrolment_of", lambda context: None),
        replaced(mod, "policy_of", lambda context: Policy()),
    ):
        yield


ATTACKS = [
    Attack(
        "flower-other-rate",
        "All nodes but one are told a learning rate of zero, so that the sum is the last one's update.",
        "Nodes that are told different things have no masks in common, and the mod refuses.",
        other_rate,
        without_terms,
        extra="flower",
    ),
    Attack(
        "flower-second-task",
        "A second UNMASK task runs on a context that was put back, with other survivors.",
        "A node gives its shares once: the ledger is a file of its own, whatever Flower's context says.",
        second_task,
        without_record,
        extra="flower",
    ),
    Attack(
        "flower-in-the-clear",
        "A server without secure aggregation asks for the trained model.",
        "A node with the mod sends no model in the clear.",
        in_the_clear,
        without_mod,
        extra="flower",
    ),
    Attack(
        "flower-evaluation",
        "A server asks a single node to evaluate, though its owner has forbidden it.",
        "A node whose owner forbids evaluation answers none.",
        evaluation,
        without_prohibition,
        extra="flower",
    ),
    Attack(
        "flower-downgrade",
        "A server leaves the roster out and runs without it among nodes that have one.",
        "A node that has a roster takes part in nothing that is not bound to it.",
        downgrade,
        without_enrolment,
        modes=("authenticated",),
        promised=("authenticated",),
        extra="flower",
    ),
]
