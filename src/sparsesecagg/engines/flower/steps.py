"""Models and steps in Flower's records: what both sides of the way down need.

A model travels as the ArrayRecord that the strategy made, or as one array of bytes that holds steps, beside the arrays
that have no steps (integers and truth values, which stay as they are). Either way the node ends up with the very
record that the server has: names, types, shapes and every bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord

from sparsesecagg.downlink import Spread
from sparsesecagg.downlink.vector import Vector
from sparsesecagg.engines.flower.arrays import Template, view
from sparsesecagg.engines.flower.records import STYPE

STEPS = "secagg-steps"
"""The name of the array that holds steps."""
NUMBER = "model"
"""The control record's entry that numbers a whole model, so that steps can follow it."""
HELD = "held"
"""The reply's entry that says which model the node has kept."""


def join(template: Template, record: ArrayRecord) -> Vector:
    """Return a model's floating-point arrays as the vector that steps are made of."""
    with np.errstate(over="ignore"):  # What float32 can't hold becomes infinite, and is refused as such.
        return Spread(template.sizes).join([view(record[slot.name]) for slot in template.travelling])


def rebuild(template: Template, vector: Vector, others: Mapping[str, Array]) -> ArrayRecord:
    """Return the model in a vector, with the arrays that have no steps as they are; raises KeyError if one is missing.

    Types are those of the template. float64 and float16 are made of float32, on both sides alike.
    """
    parts = iter(Spread(template.sizes).split(vector))
    return ArrayRecord(
        {
            slot.name: Array(np.asarray(next(parts).reshape(slot.shape).astype(slot.dtype)))
            if slot.size
            else others[slot.name]
            for slot in template.slots
        }
    )


def steps_record(steps: bytes, others: Mapping[str, Array]) -> ArrayRecord:
    """Return the record that carries steps."""
    return ArrayRecord({STEPS: Array("uint8", (len(steps),), STYPE, steps), **others})
