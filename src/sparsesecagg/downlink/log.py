"""The server's side: the model, the steps that led to it, and bytes for every node.

    log = StepLog(model, bits=4)
    model = log.advance(target)          the rounded model, which is the model from now on
    blob = log.for_node(sequence)        for `Replica.catch_up`; None: for a node that has no model

Old steps are forgotten as soon as the whole model is smaller than all that follow them, so the log never holds more
than about three models: the rounded one, the kept error and the steps.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from sparsesecagg.downlink.catchup import (
    Steps,
    WholeModel,
    decode_catchup,
    join_steps,
    steps_size,
    whole_model_size,
)
from sparsesecagg.downlink.encoder import StepEncoder
from sparsesecagg.downlink.step import ModelStep
from sparsesecagg.downlink.vector import Vector
from sparsesecagg.errors import MalformedMessage

_SAVED = struct.Struct("<BQQ")
_DIGEST_PREFIX = 8


class _Kept(NamedTuple):
    """A step of the past."""

    before: int
    digest_before: bytes
    encoded: bytes

    @staticmethod
    def of(step: ModelStep) -> _Kept:
        return _Kept(step.before, step.digest_before, step.encode())


class StepLog:
    """Rounds models to steps and hands out what each node lacks."""

    def __init__(self, model: Vector, bits: int = 4, sequence: int = 0) -> None:
        """Begin with a model of shape (dim,), float32, that has the number `sequence`; values below 2^−103 become 0."""
        self._encoder = StepEncoder(model, bits, sequence)
        self._steps: deque[_Kept] = deque()
        self._blobs: dict[int | None, bytes] = {}

    @property
    def bits(self) -> int:
        """Bits per coordinate of a step."""
        return self._encoder.bits

    @property
    def model(self) -> Vector:
        """The rounded model, shape (dim,), float32, read-only: bit for bit what nodes hold."""
        return self._encoder.model

    @property
    def digest(self) -> bytes:
        """SHA-256 of the rounded model."""
        return self._encoder.digest

    @property
    def sequence(self) -> int:
        """The number of the rounded model."""
        return self._encoder.sequence

    @property
    def oldest(self) -> int:
        """The number of the oldest model that steps still lead from."""
        return self._steps[0].before if self._steps else self.sequence

    def advance(self, target: Vector, sequence: int | None = None) -> Vector:
        """Step towards `target`, shape (dim,), float32, and return the rounded model: continue from that one.

        `sequence` numbers the new model (a round number, say), by default the next number.
        """
        step = self._encoder.encode(target, sequence)
        self._steps.append(_Kept.of(step))
        self._blobs.clear()
        limit = whole_model_size(step.dim)
        while self._steps and steps_size([len(kept.encoded) for kept in self._steps]) >= limit:
            self._steps.popleft()
        return self.model

    def for_node(self, sequence: int | None = None, digest: bytes | None = None) -> bytes:
        """Return the steps that a node at model `sequence` lacks or the whole model, whichever is smaller.

        None, a number of the future or of a model long gone: the whole model. With the node's own `digest` (8 bytes or
        more of it) a node whose model differs gets the whole model at once, not after a `WrongStep`.
        """
        if not self._leads_from(sequence, digest):
            sequence = None
        if sequence is not None and sequence != self._previous:
            return self._blob(sequence)
        # Nearly all nodes ask for one of these two: the whole model, or the last step. Bytes that nodes share are held
        # once, however many nodes there are.
        if sequence not in self._blobs:
            self._blobs[sequence] = self._blob(sequence)
        return self._blobs[sequence]

    def save(self) -> bytes:
        """Return the log as bytes, kept error and steps included, for `restore`."""
        encoder = self._encoder
        model = WholeModel(encoder.sequence, encoder.model, encoder.digest).encode()
        steps = join_steps(encoder.sequence, len(encoder.model), encoder.digest, [kept.encoded for kept in self._steps])
        return b"".join((_SAVED.pack(encoder.bits, len(model), len(steps)), model, steps, encoder.error_bytes()))

    @classmethod
    def restore(cls, data: bytes) -> StepLog:
        """Return the log that `save` wrote: it continues with the very same bytes."""
        if len(data) < _SAVED.size:
            raise MalformedMessage("the bytes are not a saved log")
        bits, model_size, steps_length = _SAVED.unpack_from(data)
        rest = memoryview(data)[_SAVED.size :]
        model, steps = decode_catchup(rest[:model_size]), decode_catchup(rest[model_size:][:steps_length])
        if not isinstance(model, WholeModel) or not isinstance(steps, Steps):
            raise MalformedMessage("the bytes are not a saved log")
        if (steps.sequence, steps.digest) != (model.sequence, model.digest):
            raise MalformedMessage("the steps of a saved log do not lead to its model")
        log = cls.__new__(cls)
        log._encoder = StepEncoder.restored(model.model, bits, model.sequence, rest[model_size:][steps_length:])
        log._steps = deque(_Kept.of(step) for step in steps.steps)
        log._blobs = {}
        return log

    @property
    def _previous(self) -> int | None:
        """The number of the model before the last step, if that step is kept."""
        return self._steps[-1].before if self._steps else None

    def _leads_from(self, sequence: int | None, digest: bytes | None) -> bool:
        """Say whether the log still knows the model that a node holds."""
        known = {kept.before: kept.digest_before for kept in self._steps}
        known[self.sequence] = self.digest[:_DIGEST_PREFIX]
        if sequence is None or sequence not in known:
            return False
        return digest is None or digest[:_DIGEST_PREFIX] == known[sequence]

    def _blob(self, sequence: int | None) -> bytes:
        if sequence is None:
            return WholeModel(self.sequence, self.model, self.digest).encode()
        missing = [kept.encoded for kept in self._steps if kept.before >= sequence]
        return join_steps(self.sequence, len(self.model), self.digest, missing)
