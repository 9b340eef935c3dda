"""The server's side: from the model that training asks for to the model that everybody holds, and bytes for every node.

Rounding keeps its error: model + error follows the targets exactly (up to float32), so rounding is delayed, never lost.
Old steps are forgotten as soon as the whole model is smaller than all that follow them, so the log never holds more
than about three models (the rounded one, the kept error and the steps), and what it has handed out since the last step.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import replace

import numpy as np

from sparsesecagg.downlink import vector
from sparsesecagg.downlink.replica import Steps, WholeModel, decode_catchup, steps_size, whole_model_size
from sparsesecagg.downlink.step import STEP_BITS, ModelStep, add_step, round_change
from sparsesecagg.downlink.vector import NumberedModel, Vector, model_digest
from sparsesecagg.errors import InvalidInput, MalformedMessage, WrongStep, require

_SAVED = struct.Struct("<BQQ")


class StepLog(NumberedModel):
    """Rounds models to steps and hands out what each node lacks; its model is bit for bit what nodes hold."""

    def __init__(self, model: Vector, bits: int = 4, sequence: int = 0) -> None:
        """Begin with a model of shape (dim,), float32, that has the number `sequence`; values below 2^−103 become 0."""
        require("bits", bits in STEP_BITS, f"must be 2, 4 or 8, got {bits}")
        self.bits = bits
        clean = vector.require_vector("model", model).copy()
        clean[vector.too_small(clean)] = 0
        super().__init__(clean, sequence)
        self._error = np.zeros_like(clean)
        self._steps: deque[ModelStep] = deque()
        self._messages: dict[int | None, bytes] = {}
        """By the model that they start from: bytes that nodes share are held once, however many nodes there are."""

    @property
    def oldest(self) -> int:
        """The number of the oldest model that steps still lead from."""
        return self._steps[0].before if self._steps else self.sequence

    def advance(self, target: Vector, sequence: int | None = None) -> Vector:
        """Step towards `target`, shape (dim,), float32, and return the rounded model: continue from that one.

        `sequence` numbers the new model (a round number, say), by default the next number.
        """
        self.step(target, sequence)
        return self.model

    def step(self, target: Vector, sequence: int | None = None) -> ModelStep:
        """Advance as above, and return the step that leads there.

        Where `target` equals the model in a whole block of 512, the block stays as it is and its error waits: a round
        that changes few blocks makes a small step.
        """
        dim, after = len(self.model), self.sequence + 1 if sequence is None else sequence
        vector.require_vector("target", target)
        require("target", len(target) == dim, f"must have {dim} values, as the model has, got {len(target)}")
        vector.require_sequence(after)
        require("sequence", self.sequence < after, f"must be above {self.sequence}, got {after}")
        exponents, levels = round_change(target, self.model, self._error, self.bits)
        draft = ModelStep(self.bits, dim, self.sequence, after, self.digest[:8], b"", exponents, levels)
        try:
            model = add_step(self.model, draft)
        except WrongStep:
            raise InvalidInput("target", "is so far from the model that the rounded model exceeds 2**100") from None
        error = target - model
        error += self._error
        self._hold(model, after, model_digest(model))
        self._error = error
        step = replace(draft, digest_after=self.digest)
        self._steps.append(step)
        self._messages.clear()
        while self._steps and steps_size(self._steps) >= whole_model_size(dim):
            self._steps.popleft()
        return step

    def for_node(self, sequence: int | None = None, digest: bytes | None = None) -> bytes:
        """Return the steps that a node at model `sequence` lacks or the whole model, whichever is smaller.

        None, a number of the future or of a model long gone: the whole model. With the node's own `digest` (8 bytes or
        more of it) a node whose model differs gets the whole model at once, not after a `WrongStep`.
        """
        known = {step.before: step.digest_before for step in self._steps} | {self.sequence: self.digest[:8]}
        if sequence not in known or (digest is not None and digest[:8] != known[sequence]):
            sequence = None
        if sequence not in self._messages:
            self._messages[sequence] = (self._whole() if sequence is None else self._since(sequence)).encode()
        return self._messages[sequence]

    def _whole(self) -> WholeModel:
        return WholeModel(self.sequence, self.model, self.digest)

    def _since(self, sequence: int) -> Steps:
        missing = tuple(step for step in self._steps if step.before >= sequence)
        return Steps(self.sequence, len(self.model), self.digest, missing)

    def save(self) -> bytes:
        """Return the log as bytes, kept error and steps included, for `restore`."""
        model, steps = self._whole().encode(), self._since(self.oldest).encode()
        return b"".join((_SAVED.pack(self.bits, len(model), len(steps)), model, steps, vector.wire_bytes(self._error)))

    @classmethod
    def restore(cls, data: bytes) -> StepLog:
        """Return the log that `save` wrote: it continues with the very same bytes."""
        if len(data) < _SAVED.size:
            raise MalformedMessage("the bytes are not a saved log")
        bits, model_size, steps_length = _SAVED.unpack_from(data)
        rest = memoryview(data)[_SAVED.size :]
        model, steps = decode_catchup(rest[:model_size]), decode_catchup(rest[model_size:][:steps_length])
        error = rest[model_size:][steps_length:]
        if not isinstance(model, WholeModel) or not isinstance(steps, Steps):
            raise MalformedMessage("the bytes are not a saved log")
        if (steps.sequence, steps.digest) != (model.sequence, model.digest):
            raise MalformedMessage("the steps of a saved log do not lead to its model")
        if bits not in STEP_BITS or len(error) != model.model.nbytes:
            raise MalformedMessage("the bits or the kept error of a saved log are not those of its model")
        log = cls(model.model, bits, model.sequence)
        log._steps, log._error = deque(steps.steps), vector.from_wire(error)
        if not np.isfinite(log._error).all():
            raise MalformedMessage("the kept error of a saved log is not finite")
        return log
