"""Evaluation whose metrics are summed under the masks of the update, instead of going to the server in the clear.

Flower evaluates in messages of their own, and their replies name single nodes. But the model that a node is sent to
train is the one that was to be tested, so it can be tested there, before training, and the metrics can travel with the
update.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

Function = Callable[[Message, Context], Message]


def evaluate_first(evaluate: Function) -> Callable[[Message, Context, Function], Message]:
    """Return a mod that tests the received model before training: `mods=[secagg_mod, evaluate_first(evaluate)]`.

    `evaluate` is the app's evaluate function. Its metrics join those of the train function's reply, whose names win;
    `SecAgg(..., metrics={"eval_acc": 1.0})` then averages them under the masks, by the weights of training. They are
    about the model of the round before. Put it after `secagg_mod`, or the metrics travel in the clear.
    """

    def mod(message: Message, context: Context, call_next: Function) -> Message:
        # A message of its own, since the function may clear the arrays that training needs.
        own, items = copy.copy(message), message.content.items()
        own.content = RecordDict(
            {name: ArrayRecord(dict(each)) if isinstance(each, ArrayRecord) else each for name, each in items}
        )
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
