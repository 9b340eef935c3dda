"""Both sides: the model that the server moves, what a node gets that is behind, and the node's copy, bit for bit.

docs/downlink.md has every byte. Steps that take as many bytes as the model or more are refused: it would have been sent
instead, and the limit bounds what a message can make a node compute. The digest of a replica is always that of the
bytes the node holds, never one that was announced: masks are derived under it, so a node that was shown another model
than the others masks with something else.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from sparsesecagg.downlink import vector
from sparsesecagg.downlink.step import STEP_BITS, VERSION, ModelStep, add_step, round_change
from sparsesecagg.downlink.vector import Vector, model_digest
from sparsesecagg.errors import InvalidInput, MalformedMessage, WrongStep, require

_HEADER = struct.Struct("<BBQQ32s")
_SAVED = struct.Struct("<BQQ")
_LENGTH = struct.Struct("<Q")
_WHOLE_MODEL, _STEPS = 1, 2
_FLOAT_SIZE = 4


@dataclass(frozen=True, eq=False)
class WholeModel:
    """A model, its number and its digest."""

    sequence: int
    model: Vector
    digest: bytes

    def encode(self) -> bytes:
        """Return the message as bytes."""
        header = _HEADER.pack(VERSION, _WHOLE_MODEL, self.sequence, len(self.model), self.digest)
        return b"".join((header, vector.wire_bytes(self.model)))


@dataclass(frozen=True)
class Steps:
    """Steps that follow one another, and the number and digest of the model they lead to."""

    sequence: int
    dim: int
    digest: bytes
    steps: tuple[ModelStep, ...]

    def encode(self) -> bytes:
        """Return the message as bytes."""
        pieces = [_HEADER.pack(VERSION, _STEPS, self.sequence, self.dim, self.digest)]
        for step in self.steps:
            pieces += [_LENGTH.pack(step.size), step.encode()]
        return b"".join(pieces)


def whole_model_size(dim: int) -> int:
    """Return the bytes of a whole model of `dim` coordinates on the wire."""
    return _HEADER.size + _FLOAT_SIZE * dim


def steps_size(steps: Iterable[ModelStep]) -> int:
    """Return the bytes of a message that holds these steps."""
    return _HEADER.size + sum(_LENGTH.size + step.size for step in steps)


def decode_catchup(data: bytes | memoryview) -> WholeModel | Steps:
    """Read either message; refuse whatever would not have been written. Needs about as much memory as `data`."""
    if len(data) < _HEADER.size:
        raise MalformedMessage(f"a catch-up has {_HEADER.size} bytes or more, got {len(data)}")
    version, kind, sequence, dim, digest = _HEADER.unpack_from(data)
    if version != VERSION:
        raise MalformedMessage(f"catch-ups have version {VERSION}, got {version}")
    if not dim:
        raise MalformedMessage("a model has at least one coordinate")
    content = memoryview(data)[_HEADER.size :]
    if kind == _WHOLE_MODEL:
        return WholeModel(sequence, _decode_model(content, dim, digest), digest)
    if kind == _STEPS:
        if len(data) >= whole_model_size(dim) and content:
            raise MalformedMessage(f"{len(data)} bytes of steps are no fewer than the model of {dim} coordinates takes")
        steps = _decode_steps(content, dim)
        if steps and (steps[-1].after, steps[-1].digest_after) != (sequence, digest):
            raise MalformedMessage(f"the steps do not lead to the model {sequence} that they are said to")
        return Steps(sequence, dim, digest, steps)
    raise MalformedMessage(f"a catch-up is of kind 1 or 2, got {kind}")


def _decode_model(content: memoryview, dim: int, digest: bytes) -> Vector:
    if len(content) != _FLOAT_SIZE * dim:
        raise MalformedMessage(f"{dim} values take {_FLOAT_SIZE * dim} bytes, not {len(content)}")
    model = vector.from_wire(content)
    if not vector.in_range(model) or vector.too_small(model).any():
        raise MalformedMessage("a value of the model is not finite, beyond 2**100, or not 0 and below 2**-103")
    if model_digest(model) != digest:
        raise MalformedMessage("the model is not the one that its digest names")
    return vector.read_only(model)


def _decode_steps(content: memoryview, dim: int) -> tuple[ModelStep, ...]:
    steps: list[ModelStep] = []
    while content:
        if len(content) < _LENGTH.size:
            raise MalformedMessage("the length of a step is cut off")
        (length,) = _LENGTH.unpack_from(content)
        content = content[_LENGTH.size :]
        if length > len(content):
            raise MalformedMessage(f"a step of {length} bytes is cut off after {len(content)}")
        step = ModelStep.decode(content[:length])
        if step.dim != dim:
            raise MalformedMessage(f"a step for {step.dim} coordinates among those of a model of {dim}")
        if steps and steps[-1].after != step.before:
            raise MalformedMessage(f"a step from model {step.before} follows one to model {steps[-1].after}")
        steps.append(step)
        content = content[length:]
    return tuple(steps)


class NumberedModel:
    """A read-only `model` of shape (dim,), float32; its number `sequence` and SHA-256 `digest` tell it from others."""

    def __init__(self, model: Vector, sequence: int) -> None:
        self._hold(model, vector.require_sequence(sequence), model_digest(model))

    def _hold(self, model: Vector, sequence: int, digest: bytes) -> None:
        self.model, self.sequence, self.digest = vector.read_only(model), sequence, digest


class Replica(NumberedModel):
    """A node's copy of the model. Whatever fails leaves it as it was."""

    def __init__(self, model: Vector, sequence: int = 0) -> None:
        """Begin with a model of shape (dim,), float32, as a `StepLog` holds it."""
        if vector.too_small(vector.require_vector("model", model)).any():
            raise InvalidInput("model", "must be one that a StepLog holds: values below 2**-103 must be 0")
        super().__init__(model.copy(), sequence)

    @classmethod
    def from_model(cls, data: bytes | memoryview) -> Replica:
        """Return a replica from the message that a node without a model gets, or from what `save` wrote."""
        message = decode_catchup(data)
        if not isinstance(message, WholeModel):
            raise MalformedMessage("a node without a model needs a whole one, got steps")
        return cls(message.model, message.sequence)

    restore = from_model

    def save(self) -> bytes:
        """Return the replica as bytes, for `restore`."""
        return WholeModel(self.sequence, self.model, self.digest).encode()

    def catch_up(self, data: bytes | memoryview) -> None:
        """Take what `StepLog.for_node` returned, all of it or nothing; the same bytes a second time change nothing.

        After `WrongStep` the remedy is the whole model, `StepLog.for_node(None)`.
        """
        message = decode_catchup(data)
        dim = len(message.model) if isinstance(message, WholeModel) else message.dim
        if dim != len(self.model):
            raise WrongStep(f"it is for a model of {dim} coordinates, and this one has {len(self.model)}")
        if isinstance(message, WholeModel):
            self._hold(message.model, message.sequence, message.digest)
            return
        model, digest, sequence = self.model, self.digest, self.sequence
        for step in message.steps:
            if step.after <= sequence:
                continue  # The replica has it already.
            if step.before != sequence:
                raise WrongStep(f"it starts from model {step.before}, and this is model {sequence}")
            if step.digest_before != digest[: len(step.digest_before)]:
                raise WrongStep(f"it was made for another model {sequence}")
            model, sequence = add_step(model, step), step.after
            digest = model_digest(model)
            if digest != step.digest_after:
                raise WrongStep(f"it leads to another model {sequence} than it says")
        if (sequence, digest) != (message.sequence, message.digest):
            raise WrongStep(f"the steps lead to model {message.sequence}, and this is another one")
        self._hold(model, sequence, digest)


class StepLog(NumberedModel):
    """The server's side: rounds models to steps and hands out what each node lacks.

    Rounding keeps its error: model + error follows the targets exactly (up to float32), so rounding is delayed, never
    lost. Old steps are forgotten as soon as the whole model is smaller than all that follow them, so the log never
    holds more than about three models (the rounded one, the kept error and the steps), and what it has handed out since
    the last step.
    """

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
