"""The node's side: what a node gets that is behind, and its copy of the model, bit for bit the server's.

docs/downlink.md has every byte. Steps that take as many bytes as the model or more are refused: it would have been sent
instead, and the limit bounds what a message can make a node compute. The digest of a replica is always that of the
bytes the node holds, never one that was announced: masks are derived under it, so a node that was shown another model
than the others masks with something else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from sparsesecagg.downlink import vector
from sparsesecagg.downlink.step import VERSION, ModelStep, add_step
from sparsesecagg.downlink.vector import NumberedModel, Vector, model_digest
from sparsesecagg.errors import InvalidInput, MalformedMessage, WrongStep

_HEADER = struct.Struct("<BBQQ32s")
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
